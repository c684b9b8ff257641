//go:build unix

package main_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// entry is one line of the audit log, as far as the tests read it.
type entry struct {
	Event, ID, Level, Schema string
	Decision, Reason, Would  string
	Product, Profile, User   string
	Proto, Dest, Layer, SNI  string
	Port                     int
	HTTPStatus               int `json:"http_status"`
	Rule                     struct {
		ID, File string
		Line     int
	}
	Client struct {
		Address     string
		UID         *uint32
		Attribution string
	}
	Resolved []struct{ IP, Class string }
	End      struct{ Who, Why string }
	Service  struct {
		PreviousStop string `json:"previous_stop"`
		Cause        string
		CutFlows     int `json:"cut_flows"`
		Listeners    []struct{ Profile, Address string }
	}
	Daemon struct {
		Version string
		PID     int
	}
	Seq uint64
}

// String is the entry in one line, what is absent left out: the form in which
// the tests write what they expect.
func (e entry) String() string {
	var b strings.Builder
	b.WriteString(e.Event)
	add := func(name, value string) {
		if value != "" && value != "0" {
			b.WriteString(" " + name + value)
		}
	}
	add("", e.Decision)
	add("", e.Reason)
	add("", e.Proto)
	if e.Dest != "" {
		add("", e.Dest+":"+strconv.Itoa(e.Port))
	}
	add("rule=", e.Rule.ID)
	add("http=", strconv.Itoa(e.HTTPStatus))
	switch end := e.End.Who + "/" + e.End.Why; end {
	case "/":
	case "client/client_closed", "server/upstream_closed":
		// When both sides leave at once, as they do after TLS's goodbye, which
		// one is seen first is chance.
		add("end=", "orderly")
	default:
		add("end=", end)
	}
	add("previous=", e.Service.PreviousStop)
	add("cause=", e.Service.Cause)
	add("cut=", strconv.Itoa(e.Service.CutFlows))
	return b.String()
}

// entries reads the whole log; every line must be a record.
func (w *world) entries() []entry {
	w.t.Helper()
	var all []entry
	for i, line := range logLines(w.t, w.audit) {
		var e entry
		require.NoError(w.t, json.Unmarshal(line, &e), "line %d: %s", i+1, line)
		assert.Equal(w.t, "sluicegate.audit/1", e.Schema)
		all = append(all, e)
	}
	return all
}

// logLines are the lines of a log without their ends; none is unfinished.
func logLines(t *testing.T, path string) [][]byte {
	t.Helper()
	log, err := os.ReadFile(path)
	require.NoError(t, err)
	if len(log) == 0 {
		return nil
	}
	log, ended := bytes.CutSuffix(log, []byte("\n"))
	require.True(t, ended, "the last line of the log has no end")
	lines := bytes.Split(log, []byte("\n"))
	for i, line := range lines {
		assert.NoError(t, validate(line), "line %d is not what the shipped schema says: %s", i+1, line)
	}
	return lines
}

// story is the log in the form of entry.String, for comparison as a whole.
func (w *world) story() []string {
	w.t.Helper()
	var lines []string
	for _, e := range w.entries() {
		lines = append(lines, e.String())
	}
	return lines
}

// await returns the log once it has n lines: the end of a connection is
// recorded after its client has gone.
func (w *world) await(n int) []entry {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d lines in the audit log", n), func() bool {
		log, err := os.ReadFile(w.audit)
		return err == nil && bytes.Count(log, []byte("\n")) >= n
	})
	return w.entries()
}

// find returns the entry with an id.
func (w *world) find(id string) entry {
	w.t.Helper()
	for _, e := range w.entries() {
		if e.ID == id {
			return e
		}
	}
	require.FailNow(w.t, "the log has no such event", id)
	return entry{}
}

// verifyChain checks the chain over the bytes of the file. It shares nothing
// with the program: it is what docs/audit.md says, written down again.
func (w *world) verifyChain() {
	w.t.Helper()
	require.NoError(w.t, checkChain(logLines(w.t, w.audit)))
}

func checkChain(lines [][]byte) error {
	prev := make([]byte, sha256.Size)
	for i, line := range lines {
		seq := i + 1
		at := bytes.LastIndex(line, []byte(`,"hash":"`))
		if at < 0 {
			return fmt.Errorf("line %d has no hash", seq)
		}
		hashed, rest := line[:at], string(line[at+len(`,"hash":"`):])
		if want := fmt.Sprintf(`,"seq":%d,"prev":"%x"`, seq, prev); !bytes.HasSuffix(hashed, []byte(want)) {
			return fmt.Errorf("line %d does not end with %s and its hash", seq, want)
		}
		sum := sha256.Sum256(append(append([]byte("sluicegate.audit/1\x00"), prev...), hashed...))
		if rest != hex.EncodeToString(sum[:])+`"}` {
			return fmt.Errorf("line %d has hash %s, its bytes have %x", seq, rest, sum)
		}
		prev = sum[:]
	}
	return nil
}

// A check that cannot fail would prove nothing about the log.
func TestChainCheckFindsFaults(t *testing.T) {
	w := newWorld(t)
	w.start().stop()
	lines := logLines(t, w.audit)
	require.Len(t, lines, 2)
	require.NoError(t, checkChain(lines))

	altered := bytes.Replace(lines[0], []byte(`"INFO"`), []byte(`"WARN"`), 1)
	require.NotEqual(t, lines[0], altered)
	for name, faulty := range map[string][][]byte{
		"altered":   {altered, lines[1]},
		"first cut": {lines[1]},
		"swapped":   {lines[1], lines[0]},
		"doubled":   {lines[0], lines[0], lines[1]},
		"no hash":   {lines[0], []byte(`{}`)},
		"end added": {append(bytes.Clone(lines[0]), ' '), lines[1]},
	} {
		assert.Error(t, checkChain(faulty), name)
	}
}
