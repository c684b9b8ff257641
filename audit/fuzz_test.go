package audit

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func FuzzEncode(f *testing.F) {
	for _, s := range []string{
		"", "example.com", "a\nb", "\x1b[2J", "\x00", "\u202e\u2028", "\xff\xed\xa0\x80", "\U0001f512",
		`","decision":"allow`, `\`, "\x7f",
	} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, dest, target, user string) {
		e := denied(dest)
		e.User = user
		e.Request = &Request{Method: target, TargetRaw: target}
		line := sealed(&e)

		require.LessOrEqual(t, len(line), MaxRecord)
		require.True(t, bytes.HasSuffix(line, []byte("}\n")))
		assertASCII(t, line[:len(line)-1])
		_, err := CheckLine(line, Link{})
		require.NoError(t, err)
		got, err := Parse(line)
		require.NoError(t, err)
		assert.Equal(t, DecisionDeny, got.Decision)
		if len(got.Truncated) == 0 {
			assert.Equal(t, string([]rune(dest)), got.Dest)
			assert.Equal(t, string([]rune(user)), got.User)
			assert.Equal(t, string([]rune(target)), got.Request.TargetRaw)
		}

		raw, cut := EscapeRaw([]byte(target), capTarget)
		require.LessOrEqual(t, len(raw), capTarget)
		assertASCII(t, []byte(raw))
		assert.Equal(t, cut, unescapeRaw(t, raw) != target)
	})
}

// unescapeRaw is the inverse of EscapeRaw.
func unescapeRaw(t *testing.T, s string) string {
	t.Helper()

	var out []byte
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '\\':
			out = append(out, s[i])
		case s[i+1] == '\\':
			out = append(out, '\\')
			i++
		default:
			hi := bytes.IndexByte([]byte(hexDigits), s[i+2])
			lo := bytes.IndexByte([]byte(hexDigits), s[i+3])
			require.True(t, s[i+1] == 'x' && hi >= 0 && lo >= 0)
			out = append(out, byte(hi<<4|lo))
			i += 3
		}
	}

	return string(out)
}

func FuzzCheckLine(f *testing.F) {
	for _, line := range chainOf(2) {
		f.Add(line)
		f.Add(line[:len(line)-1])
		f.Add(line[:len(line)-3])
		f.Add(bytes.Replace(line, []byte(`"seq":`), []byte(`"seq":0`), 1))
	}
	f.Add([]byte(""))
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{,"seq":1,"prev":"` + string(bytes.Repeat([]byte("0"), 64)) +
		`","hash":"` + string(bytes.Repeat([]byte("0"), 64)) + `"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		link, err := CheckLine(line, Link{})
		_, _ = Parse(line)
		if err != nil {
			return
		}

		// What checks was sealed from exactly these bytes; any other byte fails.
		p, ok := splitLine(line)
		require.True(t, ok)
		assert.Equal(t, uint64(1), link.Seq)
		assert.Equal(t, newSealer().sum(p.prev, p.hashed), link.Hash)
		for i := range len(bytes.TrimSuffix(line, []byte("\n"))) {
			changed := bytes.Clone(line)
			changed[i] ^= 1
			_, err = CheckLine(changed, Link{})
			require.Error(t, err, "byte %d", i)
		}
		_ = json.Valid(line)
	})
}
