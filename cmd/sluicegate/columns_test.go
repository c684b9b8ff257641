package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluicegate/audit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostile is what a client may send: an escape sequence, ends of lines, text
// direction, C1 controls, quotes and an invalid byte.
const hostile = "a\x1b[2Jb\nc\r\td\u202ee\u009bf\u2028g\x7fh\"i\\j k\xffl\U0001f512"

// assertPrintable fails if text has anything but printable ASCII and newlines.
func assertPrintable(t *testing.T, text string) {
	t.Helper()
	for i := range len(text) {
		if c := text[i]; c != '\n' && (c < 0x20 || c > 0x7e) {
			assert.Fail(t, "not printable", "byte %#x in %q", c, text)
			return
		}
	}
}

func TestEscape(t *testing.T) {
	assert.Equal(t, `a\u001b[2Jb\u000ac\u000d\u0009d\u202ee\u009bf\u2028g\u007fh"i\\j\x20k\xffl\U0001f512`, escape(hostile))
	assert.Equal(t, `a\u001b[2Jb\u000ac\u000d\u0009d\u202ee\u009bf\u2028g\u007fh"i\j k\xffl\U0001f512`, escapeText(hostile))
	assert.Equal(t, "plain.example.com", escape("plain.example.com"))
	assert.NotEqual(t, escape("\x1b"), escape(`\u001b`), "unambiguous")
}

// Whatever the fields of a record hold, it is one line of printable ASCII.
func TestColumnsOfHostileRecords(t *testing.T) {
	e := audit.Event{
		Event: hostile, Msg: hostile, ID: hostile, Decision: hostile, Reason: hostile, Profile: hostile, Proto: hostile,
		Dest: hostile, Port: 443, Layer: hostile, MatchedRange: hostile,
	}
	variants := map[string]func(e audit.Event) audit.Event{
		"all":      func(e audit.Event) audit.Event { return e },
		"would":    func(e audit.Event) audit.Event { e.Would = hostile; return e },
		"rule":     func(e audit.Event) audit.Event { e.Rule = &audit.Rule{ID: hostile, File: hostile, Line: 3}; return e },
		"rule id":  func(e audit.Event) audit.Event { e.Rule, e.MatchedRange = &audit.Rule{ID: hostile}, ""; return e },
		"layer":    func(e audit.Event) audit.Event { e.MatchedRange = ""; return e },
		"end":      func(e audit.Event) audit.Event { e.End = &audit.End{Who: hostile, Why: hostile}; return e },
		"opened":   func(e audit.Event) audit.Event { e.Event = audit.EgressOpened; return e },
		"sentence": func(e audit.Event) audit.Event { e.Decision, e.Reason = "", ""; return e },
		"target": func(e audit.Event) audit.Event {
			e.Dest, e.Request = "", &audit.Request{TargetRaw: hostile}
			return e
		},
	}
	for name, variant := range variants {
		t.Run(name, func(t *testing.T) {
			changed := variant(e)
			line := newColumns(false, changed.Time).line(&changed, "")
			assertPrintable(t, line)
			assert.Equal(t, 1, strings.Count(line, "\n"))
			// The same with colours, apart from ours.
			line = newColumns(true, changed.Time).line(&changed, "")
			for _, ours := range []string{ansiDim, ansiRed, ansiGreen, ansiYellow, ansiReset} {
				line = strings.ReplaceAll(line, ours, "")
			}
			assertPrintable(t, line)
		})
	}
}

func TestColumns(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 20, 30, 0, time.Local)
	c := newColumns(false, at)
	in, out, ms := int64(10), int64(2000), 1234.5
	id := "01890a5d-ac96-774b-bcce-b302099a8057"
	network := func(event audit.Name, decision, reason string) audit.Event {
		return audit.Event{
			Time: at, Event: event, ID: id, Decision: decision, Reason: reason,
			Profile: "claude-code/commands", Proto: "connect", Dest: "api.example.com", Port: 443,
		}
	}
	denied := network(audit.EgressDenied, audit.DecisionDeny, "not_listed")
	denied.Rule = &audit.Rule{ID: "default"}
	ruled := network(audit.EgressDenied, audit.DecisionDeny, "deny_rule")
	ruled.Rule = &audit.Rule{ID: "no-gists", File: filepath.Join("etc", "policy.d", "claude.yaml"), Line: 12}
	observed := network(audit.EgressObserved, audit.DecisionWouldDeny, "observe")
	observed.Would, observed.Dest, observed.MatchedRange = "dest_private", "2001:db8::1", "unique local"
	closed := network(audit.EgressClosed, audit.DecisionAllow, "rule")
	closed.End, closed.BytesIn, closed.BytesOut, closed.DurationMS = &audit.End{Who: "client", Why: "client_closed"}, &in, &out, &ms
	malformed := network(audit.EgressDenied, audit.DecisionError, "malformed_host")
	malformed.Dest, malformed.Port, malformed.Request = "", 0, &audit.Request{TargetRaw: `a\x1b b:443`}
	service := audit.Event{Time: at.AddDate(0, 0, 1), Event: audit.ServiceStarted, ID: id, Msg: "the gate started"}

	var got strings.Builder
	for _, e := range []audit.Event{denied, ruled, observed, closed, malformed, service, denied} {
		got.WriteString(c.line(&e, ""))
	}
	assert.Equal(t, `10:20:30  deny        not_listed      claude-code/commands  connect  api.example.com:443       default             ID
10:20:30  deny        deny_rule       claude-code/commands  connect  api.example.com:443       no-gists claude.yaml:12  ID
10:20:30  would_deny  dest_private    claude-code/commands  connect  [2001:db8::1]:443         unique local             ID
10:20:30  allow       rule            claude-code/commands  connect  api.example.com:443       closed by client: client_closed, 1.235s, 10 B in, 2000 B out  ID
10:20:30  error       malformed_host  claude-code/commands  connect  a\x1b\x20b:443            -                                             ID
--- 2026-12-01 ---
10:20:30  -           service.started  -                     -        -                         the gate started                              ID
--- 2026-11-30 ---
10:20:30  deny        not_listed       claude-code/commands  connect  api.example.com:443       default                                       ID
`, strings.ReplaceAll(got.String(), id, "ID"))
}

func TestColoursOnlyOnTerminals(t *testing.T) {
	env := func(vars map[string]string) func(string) string {
		return func(name string) string { return vars[name] }
	}
	assert.False(t, wantsColour(&strings.Builder{}, env(nil)))
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer f.Close()
	assert.False(t, wantsColour(f, env(nil)))

	e := audit.Event{Time: time.Now(), Decision: audit.DecisionDeny}
	assert.NotContains(t, newColumns(false, e.Time).line(&e, ""), "\x1b")
	assert.Contains(t, newColumns(true, e.Time).line(&e, ""), ansiRed+"deny"+ansiReset)
}
