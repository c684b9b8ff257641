package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chainOf returns n sealed lines that follow each other.
func chainOf(n int) (lines [][]byte) {
	var (
		enc  encoder
		link Link
		line []byte
		s    = newSealer()
	)
	for i := range n {
		e := denied(fmt.Sprintf("host%d.example.com", i))
		enc.encode(&e)
		line, link = s.seal(nil, enc.buf, link)
		lines = append(lines, line)
	}

	return lines
}

// checkAll returns the error of the first line that doesn't check, and which.
func checkAll(lines [][]byte) (int, error) {
	var prev Link
	for i, line := range lines {
		link, err := CheckLine(line, prev)
		if err != nil {
			return i, err
		}
		prev = link
	}

	return -1, nil
}

// The format is a promise to checkers that others write: this one shares no code
// with the package.
func TestChainFormat(t *testing.T) {
	prev := make([]byte, 32)
	for i, line := range chainOf(3) {
		text := strings.TrimSuffix(string(line), "\n")
		at := strings.LastIndex(text, `,"hash":"`)
		body, hash := text[:at], text[at+len(`,"hash":"`):len(text)-2]

		sum := sha256.Sum256([]byte("sluicegate.audit/1\x00" + string(prev) + body))
		assert.Equal(t, hex.EncodeToString(sum[:]), hash)
		assert.True(t, strings.HasSuffix(body,
			fmt.Sprintf(`,"seq":%d,"prev":"%x"`, i+1, prev)), body)
		prev = sum[:]
	}
}

func TestCheckLineFindsChanges(t *testing.T) {
	lines := chainOf(5)
	_, err := checkAll(lines)
	require.NoError(t, err)

	replace := func(i int, from, to string) [][]byte {
		all := bytes.Join(lines, nil)
		changed := bytes.SplitAfter(all, []byte("\n"))[:5]
		changed[i] = bytes.Replace(changed[i], []byte(from), []byte(to), 1)
		require.NotEqual(t, lines[i], changed[i])

		return changed
	}
	forged := func() [][]byte {
		// Sealed anew by somebody who knows how, but not the lines behind it.
		var enc encoder
		e := denied("forged.example.com")
		enc.encode(&e)
		prev, ok := splitLine(lines[1])
		require.True(t, ok)
		line, _ := newSealer().seal(nil, enc.buf, prev.link)

		return [][]byte{lines[0], lines[1], line, lines[3]}
	}

	skipping := func() [][]byte {
		// The right prev and a right hash, but a number too far.
		p, ok := splitLine(lines[0])
		require.True(t, ok)
		line, _ := newSealer().seal(nil, []byte(`{"time":""`), Link{Seq: 7, Hash: p.link.Hash})

		return [][]byte{lines[0], line}
	}

	for _, tc := range []struct {
		name  string
		lines [][]byte
		want  error
		at    int
	}{
		{"value edited", replace(2, "host2", "host9"), ErrAltered, 2},
		{"key edited", replace(2, `"decision"`, `"decisioN"`), ErrAltered, 2},
		{"space added", replace(2, `{"time"`, `{ "time"`), ErrAltered, 2},
		{"seq edited", replace(2, `"seq":3`, `"seq":4`), ErrAltered, 2},
		{"prev edited", replace(2, `"prev":"`, `"prev":"0`), ErrNotRecord, 2},
		{"first deleted", lines[1:], ErrChain, 0},
		{"one deleted", [][]byte{lines[0], lines[1], lines[3]}, ErrChain, 2},
		{"two swapped", [][]byte{lines[0], lines[2], lines[1]}, ErrChain, 1},
		{"one doubled", [][]byte{lines[0], lines[1], lines[1]}, ErrChain, 2},
		{"foreign inserted", [][]byte{lines[0], []byte("{}\n"), lines[1]}, ErrNotRecord, 1},
		{"one resealed", forged(), ErrChain, 3},
		{"number skipped", skipping(), ErrChain, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at, err := checkAll(tc.lines)
			require.ErrorIs(t, err, tc.want)
			assert.Equal(t, tc.at, at)
		})
	}
}

func TestCheckLineForm(t *testing.T) {
	line := string(chainOf(1)[0])
	bare := strings.TrimSuffix(line, "\n")
	_, err := CheckLine([]byte(bare), Link{})
	require.NoError(t, err, "the newline is optional")

	for name, in := range map[string]string{
		"empty":          "",
		"newline":        "\n",
		"object":         "{}",
		"torn":           bare[:len(bare)-1],
		"no brace":       bare[1:],
		"two newlines":   line + "\n",
		"two lines":      line + line,
		"carriage":       bare + "\r\n",
		"space":          bare + " ",
		"upper case":     bare[:len(bare)-66] + strings.ToUpper(bare[len(bare)-66:]),
		"not hex":        bare[:len(bare)-3] + `g"}`,
		"seq zero":       strings.Replace(bare, `"seq":1`, `"seq":0`, 1),
		"seq padded":     strings.Replace(bare, `"seq":1`, `"seq":01`, 1),
		"seq signed":     strings.Replace(bare, `"seq":1`, `"seq":+1`, 1),
		"seq too large":  strings.Replace(bare, `"seq":1`, `"seq":99999999999999999999`, 1),
		"seq missing":    strings.Replace(bare, `,"seq":1`, ``, 1),
		"key behind seq": strings.Replace(bare, `"seq":1`, `"seq":1,"x":1`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			link, err := CheckLine([]byte(in), Link{})
			require.ErrorIs(t, err, ErrNotRecord)
			assert.Zero(t, link)
		})
	}
}

func TestCheckLineGoesOnBehindAFault(t *testing.T) {
	lines := chainOf(4)
	link, err := CheckLine(lines[2], Link{})
	require.ErrorIs(t, err, ErrChain)
	assert.Equal(t, uint64(3), link.Seq)
	_, err = CheckLine(lines[3], link)
	require.NoError(t, err)
}
