package main

import (
	"strings"
	"testing"
	"time"

	"sluicegate/audit"

	"github.com/stretchr/testify/assert"
)

// foldEvents are three refusals of one kind, another one, an allowed tunnel and
// two refusals of the first kind, a second apart.
func foldEvents() []audit.Event {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.Local)
	var events []audit.Event
	for i, host := range []string{"a", "a", "a", "b", "allowed", "a", "a"} {
		e := audit.Event{
			Time: at.Add(time.Duration(i) * time.Second), Event: audit.EgressDenied, Decision: audit.DecisionDeny,
			Reason: "not_listed", Profile: "x/y", Dest: host, Port: 443, ID: strings.Repeat(string(rune('1'+i)), 4),
		}
		if host == "allowed" {
			e.Event, e.Decision = audit.EgressOpened, audit.DecisionAllow
		}
		events = append(events, e)
	}
	return events
}

// short shows of each line the time, the destination and what stands behind the id.
func short(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if strings.Contains(line, "more like") {
			lines = append(lines, strings.Join(f, " "))
			continue
		}
		i := len(f)
		for i > 0 && len(strings.Trim(f[i-1], "1234567")) > 0 {
			i--
		}
		lines = append(lines, strings.Join(append([]string{f[0], f[5], f[i-1]}, f[i:]...), " "))
	}
	return lines
}

func TestFold(t *testing.T) {
	events := foldEvents()
	f := folder{columns: newColumns(false, events[0].Time)}
	var out string
	for _, e := range events {
		out += f.add(&e, e.Time)
		out += f.idle(e.Time.Add(time.Hour))
	}
	out += f.flush()
	assert.Equal(t, []string{
		"10:00:00 a:443 1111 (3 times, last at 10:00:02)",
		"10:00:03 b:443 4444",
		"10:00:04 allowed:443 5555",
		"10:00:05 a:443 6666 (2 times, last at 10:00:06)",
	}, short(out))
	assert.Empty(t, f.flush())
}

func TestFoldLive(t *testing.T) {
	events := foldEvents()
	now := events[0].Time
	f := folder{columns: newColumns(false, now), live: true}

	assert.Equal(t, []string{"10:00:00 a:443 1111"}, short(f.add(&events[0], now)), "at first sight")
	assert.Empty(t, f.add(&events[1], now))
	assert.Empty(t, f.add(&events[2], now.Add(time.Second)))
	assert.Equal(t, []string{"10:00:02 2 more like the line above", "10:00:03 b:443 4444"}, short(f.add(&events[3], now)))
	assert.Equal(t, []string{"10:00:04 allowed:443 5555"}, short(f.add(&events[4], now)), "no count of one")

	assert.Len(t, short(f.add(&events[5], now)), 1)
	assert.Empty(t, f.add(&events[6], now))
	assert.Empty(t, f.idle(now.Add(foldQuiet-1)))
	assert.Equal(t, []string{"10:00:06 1 more like the line above"}, short(f.idle(now.Add(foldQuiet))))
	assert.Empty(t, f.idle(now.Add(time.Hour)))
	assert.Len(t, short(f.add(&events[6], now)), 1, "a new run")
	assert.Empty(t, f.flush())
}

// What differs in any of the keys is not folded.
func TestFoldKeys(t *testing.T) {
	base := foldEvents()[0]
	for name, change := range map[string]func(e *audit.Event){
		"profile":  func(e *audit.Event) { e.Profile = "x/z" },
		"reason":   func(e *audit.Event) { e.Reason = "deny_rule" },
		"would":    func(e *audit.Event) { e.Would = "deny_rule" },
		"host":     func(e *audit.Event) { e.Dest = "c" },
		"port":     func(e *audit.Event) { e.Port = 80 },
		"decision": func(e *audit.Event) { e.Decision = audit.DecisionError },
		"event":    func(e *audit.Event) { e.Event = audit.EgressClosed },
		"target":   func(e *audit.Event) { e.Dest, e.Request = "", &audit.Request{TargetRaw: "c"} },
	} {
		f := folder{columns: newColumns(false, base.Time)}
		other := base
		change(&other)
		out := f.add(&base, base.Time) + f.add(&other, base.Time) + f.flush()
		assert.Equal(t, 2, strings.Count(out, "\n"), name)
		assert.NotContains(t, out, "times", name)
	}
}
