package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecordWritesOneCompleteLine(t *testing.T) {
	path := logPath(t)
	now := time.Date(2026, 11, 30, 10, 0, 0, 123456789, time.UTC)
	l := openLog(t, Options{File: path, Version: "1.2.3", Now: func() time.Time { return now }})

	e := denied("example.com")
	e.ID = NewID()
	e.Boot, e.Seq, e.Prev = "forged", 99, "forged"
	record(t, l, e, Event{Event: ServiceStopped})

	// Before Close: the line is in the file when Record returns.
	events := verify(t, path, 0)
	require.Len(t, events, 2)
	host, err := os.Hostname()
	require.NoError(t, err)

	got := events[0]
	assert.Equal(t, e.ID, got.ID)
	assert.Equal(t, now.Truncate(time.Millisecond), got.Time)
	assert.Equal(t, Schema, got.Schema)
	assert.Equal(t, host, got.Host.Name)
	assert.NotEmpty(t, got.Host.OS)
	assert.Equal(t, Daemon{Version: "1.2.3", PID: os.Getpid()}, got.Daemon)
	assert.Equal(t, l.Stats().Boot, got.Boot)
	assert.Equal(t, uint64(1), got.Seq)
	assert.Equal(t, strings.Repeat("0", 64), got.Prev)

	filled := events[1]
	assert.Len(t, filled.ID, 36)
	assert.Equal(t, LevelInfo, filled.Level)
	assert.Equal(t, "service.stopped", filled.Msg)
	assert.Equal(t, uint64(2), filled.Seq)
}

func TestRecordConcurrently(t *testing.T) {
	const callers, each = 64, 50

	path := logPath(t)
	fs := &faultyStorage{}
	// Until all callers wait for their first line, nothing is written. How many
	// of them the writer has taken into its first batch by then is chance.
	blocked := make(chan struct{})
	var taken atomic.Int64
	fs.onWrite = func(b []byte) (int, error) {
		taken.CompareAndSwap(0, int64(bytes.Count(b, []byte("\n"))))
		<-blocked

		return len(b), nil
	}
	l := openLog(t, Options{File: path, storage: fs})

	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for j := range each {
				assert.NoError(t, l.Record(t.Context(), denied(fmt.Sprintf("h%d-%d.example.com", i, j))))
			}
		})
	}
	assert.Eventually(t, func() bool {
		return taken.Load() > 0 && int(taken.Load())+l.Stats().Queued == callers
	}, 10*time.Second, time.Millisecond)
	close(blocked)
	all.Wait()

	stats := l.Stats()
	closeLog(t, l)
	events := verify(t, path, 0)
	require.Len(t, events, callers*each)
	dests := map[string]bool{}
	for _, e := range events {
		dests[e.Dest] = true
	}
	assert.Len(t, dests, callers*each, "every line is there once")
	writes, _, _ := fs.count()
	assert.Less(t, writes, callers*each, "waiting lines share a write")

	assert.Equal(t, map[Name]uint64{EgressDenied: callers * each}, stats.Events)
	assert.Equal(t, map[string]uint64{DecisionDeny: callers * each}, stats.Decisions)
	assert.Equal(t, uint64(callers*each), stats.LastSeq)
	last, err := CheckLine(allLines(t, path)[callers*each-1], linkBefore(t, path))
	require.NoError(t, err)
	assert.Equal(t, last.HashString(), stats.LastHash)
	assert.True(t, stats.Healthy)
	assert.Empty(t, stats.LastError)
}

// linkBefore returns the Link of the last line but one.
func linkBefore(t *testing.T, path string) Link {
	t.Helper()

	lines := allLines(t, path)
	p, ok := splitLine(lines[len(lines)-2])
	require.True(t, ok)

	return p.link
}

func TestChainGoesOnOverRestarts(t *testing.T) {
	path := logPath(t)
	for i := range 3 {
		l := openLog(t, Options{File: path})
		assert.Equal(t, uint64(2*i), l.Stats().LastSeq)
		record(t, l, denied("example.com"), Event{Event: ServiceStopped})
		closeLog(t, l)
	}
	events := verify(t, path, 0)
	require.Len(t, events, 6)
	assert.NotEqual(t, events[0].Boot, events[2].Boot)
}

func TestPreviousStop(t *testing.T) {
	path := logPath(t)
	open := func() *Log { return openLog(t, Options{File: path}) }

	l := open()
	assert.Equal(t, "unknown", l.PreviousStop())
	closeLog(t, l)

	l = open()
	assert.Equal(t, "unknown", l.PreviousStop(), "an empty file says nothing")
	record(t, l, Event{Event: ServiceStarted})
	closeLog(t, l)

	l = open()
	assert.Equal(t, "unclean", l.PreviousStop())
	record(t, l, Event{Event: ServiceStopped})
	closeLog(t, l)

	l = open()
	assert.Equal(t, "clean", l.PreviousStop())
	closeLog(t, l)

	appendFile(t, path, `{"time":"2026`)
	l = open()
	assert.Equal(t, "unclean", l.PreviousStop(), "something was written after the stop")
}

func appendFile(t *testing.T, path, text string) {
	t.Helper()

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestOpenTwice(t *testing.T) {
	path := logPath(t)
	l := openLog(t, Options{File: path})

	_, err := Open(t.Context(), Options{File: path})
	require.ErrorIs(t, err, ErrLocked)
	assert.Equal(t, "locking audit log: audit log is in use: another process holds "+path+
		".lock: stop it, or give one of the two another audit.file", err.Error())

	closeLog(t, l)
	closeLog(t, openLog(t, Options{File: path}))
}

func TestOpenCreatesFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	l := openLog(t, Options{File: filepath.Join(dir, "audit.jsonl")})
	closeLog(t, l)

	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.True(t, info.IsDir())
}
