package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ran is how a command ended.
type ran struct {
	code     int
	out, err string
}

// command runs one command line in this process.
func command(t *testing.T, args ...string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, &out, &errs)
	return ran{code, out.String(), errs.String()}
}

// alone keeps the settings of the person who runs the tests away, and returns the
// live file of a new log.
func alone(t *testing.T) (file string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	return filepath.Join(dir, "state", "sluicegate", "audit.jsonl")
}

// refusal returns a refusal of host.
func refusal(host string) audit.Event {
	return audit.Event{
		Event: audit.EgressDenied, Level: audit.LevelWarn, Decision: audit.DecisionDeny, Reason: "not_listed",
		Product: "claude-code", Profile: "claude-code/commands", Proto: "connect", Dest: host, Port: 443,
		Rule: &audit.Rule{ID: "default"},
	}
}

func openLog(t *testing.T, file string, maxSize int64) *audit.Log {
	t.Helper()
	l, err := audit.Open(t.Context(), audit.Options{File: file, MaxSize: maxSize, Sync: time.Hour})
	require.NoError(t, err)
	return l
}

func closeLog(t *testing.T, l *audit.Log) {
	t.Helper()
	require.NoError(t, l.Close(context.Background()))
}

// writeLog writes a log of these records.
func writeLog(t *testing.T, file string, maxSize int64, events ...audit.Event) {
	t.Helper()
	l := openLog(t, file, maxSize)
	for _, e := range events {
		require.NoError(t, l.Record(t.Context(), e))
	}
	closeLog(t, l)
}

// hosts returns the destinations of printed lines.
func hosts(out string) []string {
	var got []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 5 {
			host, _, _ := strings.Cut(f[5], ":")
			got = append(got, host)
		}
	}
	return got
}

func TestTail(t *testing.T) {
	file := alone(t)
	var events []audit.Event
	for i := range 30 {
		events = append(events, refusal(fmt.Sprintf("h%d.example.com", i)))
	}
	writeLog(t, file, 1, events...) // a file for each, with the note of its rotation

	r := command(t, "tail", "--event", "egress.denied")
	assert.Zero(t, r.code)
	assert.Empty(t, r.err)
	got := hosts(r.out)
	require.Len(t, got, 20, "the default")
	assert.Equal(t, "h10.example.com", got[0])
	assert.Equal(t, "h29.example.com", got[19])
	assert.Regexp(t, `(?m)^\d\d:\d\d:\d\d  deny        not_listed      claude-code/commands  connect  h29\.example\.com:443       default             [0-9a-f-]{36}$`, r.out)
	assert.NotContains(t, r.out, "\x1b")

	assert.Equal(t, got[18:], hosts(command(t, "tail", "-n", "2", "--event", "egress.denied").out))
	assert.Empty(t, command(t, "tail", "-n", "0").out)
	all := command(t, "tail", "--since", "1h")
	assert.Equal(t, 59, strings.Count(all.out, "\n"), "all of them")
	assert.Equal(t, 3, strings.Count(command(t, "tail", "--since", "1h", "-n", "3").out, "\n"))
	assert.Empty(t, command(t, "tail", "--since", time.Now().Add(time.Hour).Format(time.RFC3339)).out)
	assert.Equal(t, all.out, command(t, "tail", "--since", time.Now().AddDate(0, 0, -1).Format(time.DateOnly)).out)
	assert.Equal(t, all.out, command(t, "tail", "-n", "59", "--file", file).out)
}

func TestTailFilters(t *testing.T) {
	file := alone(t)
	other := refusal("other.example.org")
	other.Product, other.Profile, other.Reason = "chatgpt-codex", "chatgpt-codex/commands", "deny_rule"
	observed := refusal("observed.example.com")
	observed.Event, observed.Decision, observed.Reason, observed.Would = audit.EgressObserved, audit.DecisionWouldDeny, "observe", "port_not_listed"
	writeLog(t, file, 0, refusal("a.example.com"), other, observed, refusal("example.com"))

	for _, tc := range []struct {
		flag, value string
		want        []string
	}{
		{"--decision", "would_deny", []string{"observed.example.com"}},
		{"--event", "egress.observed", []string{"observed.example.com"}},
		{"--reason", "deny_rule", []string{"other.example.org"}},
		{"--reason", "port_not_listed", []string{"observed.example.com"}},
		{"--profile", "chatgpt-codex/commands", []string{"other.example.org"}},
		{"--product", "claude-code", []string{"a.example.com", "observed.example.com", "example.com"}},
		{"--host", "A.example.com", []string{"a.example.com"}},
		{"--host", "*.example.com", []string{"a.example.com", "observed.example.com"}},
		{"--host", "**.example.com", []string{"a.example.com", "observed.example.com", "example.com"}},
	} {
		r := command(t, "tail", tc.flag, tc.value)
		assert.Zero(t, r.code, r.err)
		assert.Equal(t, tc.want, hosts(r.out), "%s %s", tc.flag, tc.value)
	}
}

func TestTailUsage(t *testing.T) {
	alone(t)
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--decision", "denied"}, []string{`--decision "denied" is not one of: allow, deny, would_deny, error`}},
		{[]string{"--event", "egress"}, []string{"egress.denied", "audit.gap"}},
		{[]string{"--reason", "nope"}, []string{"not_listed", string(policy.Reasons()[len(policy.Reasons())-1].Reason)}},
		{[]string{"--host", "*"}, []string{"*.example.com"}},
		{[]string{"--host", "example.com:443"}, []string{"without a port"}},
		{[]string{"--since", "yesterday"}, []string{"2026-11-30"}},
		{[]string{"--since", "-10m"}, []string{"--since"}},
		{[]string{"--since", ""}, []string{"--since"}},
		{[]string{"-n", "-1"}, []string{"-n -1"}},
		{[]string{"-n", "x"}, []string{"invalid argument"}},
		{[]string{"file"}, []string{"sluicegate tail --help"}},
	} {
		r := command(t, append([]string{"tail"}, tc.args...)...)
		assert.Equal(t, exitUsage, r.code, tc.args)
		assert.Empty(t, r.out)
		for _, want := range tc.want {
			assert.Contains(t, r.err, want, tc.args)
		}
	}
}

func TestTailWithoutLog(t *testing.T) {
	file := alone(t)
	r := command(t, "tail")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.err, "sluicegate: there is no audit log at "+file)
}

// The lines of the log, byte for byte.
func TestTailJSON(t *testing.T) {
	file := alone(t)
	writeLog(t, file, 0, refusal("a.example.com"), refusal(hostile), refusal("c.example.com"))
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), command(t, "tail", "--json").out)
	assert.Equal(t, string(want), command(t, "tail", "--json", "--fold").out)
	lines := bytes.SplitAfter(want, []byte("\n"))
	assert.Equal(t, string(lines[2]), command(t, "tail", "--json", "-n", "1").out)
}

// A host, and everything else a client can put into a record, never reaches the
// terminal as it is; nor does what somebody wrote into the file.
func TestTailHostile(t *testing.T) {
	file := alone(t)
	e := refusal(hostile)
	e.Profile, e.Reason, e.Proto, e.ID, e.Msg = hostile, hostile, hostile, hostile, hostile
	e.Rule = &audit.Rule{ID: hostile, File: hostile, Line: 1}
	target := refusal("")
	target.Request = &audit.Request{TargetRaw: hostile, Method: hostile}
	writeLog(t, file, 0, e, target, audit.Event{Event: hostile, Msg: hostile})
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(raw), "\n")
	appendFile(t, file, strings.Replace(lines[0], `\u001b`, "\x1b", 1)) // not JSON
	appendFile(t, file, strings.Replace(lines[0], `\u202e`, "\u202e", 1))
	appendFile(t, file, strings.Replace(lines[0], `\u009b`, "\u009b", 1)+hostile)

	for _, args := range [][]string{{}, {"--fold"}, {"--json"}} {
		r := command(t, append([]string{"tail"}, args...)...)
		assert.Zero(t, r.code)
		assertPrintable(t, r.out)
		assertPrintable(t, r.err)
		assert.Equal(t, 3, strings.Count(r.out, "\n"), r.out)
		assert.Equal(t, "(line 4 is not a record)\n(lines 5 to 7 are not records)\n", r.err)
	}
}

func appendFile(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestTailDamage(t *testing.T) {
	file := alone(t)
	writeLog(t, file, 1, refusal("a.example.com"), refusal("b.example.com"))
	rotated, err := filepath.Glob(filepath.Join(filepath.Dir(file), "audit-*.jsonl"))
	require.NoError(t, err)
	require.Len(t, rotated, 1)
	appendFile(t, rotated[0], "garbage\n")
	appendFile(t, file, strings.Repeat("\n", 100_000))
	line := readLine(t, file, 1)
	appendFile(t, file, strings.Replace(line, audit.Schema, "sluicegate.audit/2", 1)+"\n")

	r := command(t, "tail", "--event", "egress.denied")
	assert.Zero(t, r.code)
	assert.Equal(t, []string{"a.example.com", "b.example.com"}, hosts(r.out))
	assert.Equal(t, "(line 2 of "+filepath.Base(rotated[0])+" is not a record)\n"+
		"(line 3 is not a record)\n(lines 4 to 100002 are not records)\n", r.err)

	// A record of another schema is no record to us, but is said to be one.
	r = command(t, "tail", "-n", "1")
	assert.Contains(t, r.err, "(line 100003 has an unknown schema)\n")
}

// readLine returns a line of a file, counted from 1.
func readLine(t *testing.T, file string, n int) string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.Split(string(b), "\n")[n-1]
}

func TestTailFold(t *testing.T) {
	file := alone(t)
	writeLog(t, file, 0, refusal("a.example.com"), refusal("a.example.com"), refusal("a.example.com"), refusal("b.example.com"))
	r := command(t, "tail", "--fold")
	assert.Equal(t, 2, strings.Count(r.out, "\n"))
	assert.Contains(t, r.out, "(3 times, last at ")
}

// A reader that goes away ends it, without an error.
func TestTailClosedPipe(t *testing.T) {
	file := alone(t)
	writeLog(t, file, 0, refusal("a.example.com"))
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	defer write.Close()
	for _, args := range [][]string{{}, {"--json"}, {"--fold"}, {"-f"}} {
		var errs bytes.Buffer
		code := run(t.Context(), append([]string{"tail"}, args...), write, &errs)
		assert.Equal(t, exitOK, code, args)
		assert.Empty(t, errs.String())
	}

	full := &output{err: fmt.Errorf("disk full")}
	assert.Equal(t, exitFailed, run(t.Context(), []string{"tail"}, full, io.Discard))
}

// What is printed as JSON can be read back.
func TestTailJSONRecords(t *testing.T) {
	file := alone(t)
	writeLog(t, file, 1, refusal("a.example.com"), refusal("b.example.com"))
	dec := json.NewDecoder(strings.NewReader(command(t, "tail", "--json").out))
	var seqs []uint64
	for dec.More() {
		var e audit.Event
		require.NoError(t, dec.Decode(&e))
		seqs = append(seqs, e.Seq)
	}
	assert.Equal(t, []uint64{1, 2, 3}, seqs)
}
