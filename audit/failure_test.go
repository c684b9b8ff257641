package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	errDisk  = errors.New("input/output error")
	errTrunc = errors.New("operation not permitted")
)

// failWrites makes every write fail with err after keep bytes.
func (s *faultyStorage) failWrites(keep int, err error) {
	s.set(func(s *faultyStorage) {
		s.onWrite = func(b []byte) (int, error) { return min(keep, len(b)), err }
	})
}

// heal lets everything through again.
func (s *faultyStorage) heal() {
	s.set(func(s *faultyStorage) {
		s.onWrite, s.onSync, s.onTruncate, s.onRename, s.onOpen = nil, nil, nil, nil, nil
	})
}

func TestFailedWrite(t *testing.T) {
	for _, tc := range []struct {
		name  string
		keep  int // bytes that arrive
		err   error
		cause string
	}{
		{"nothing arrives", 0, errDisk, CauseIOError},
		{"one byte arrives", 1, errDisk, CauseIOError},
		{"part arrives", 100, errNoSpace, CauseDiskFull},
		{"quota", 100, errQuota, CauseDiskFull},
		{"short without an error", 100, nil, CauseIOError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := logPath(t)
			fs := &faultyStorage{}
			l := openLog(t, Options{File: path, storage: fs})
			record(t, l, denied("before.example.com"))
			size := fileSize(t, path)

			fs.failWrites(tc.keep, tc.err)
			for range 3 {
				require.ErrorIs(t, l.Record(t.Context(), denied("lost.example.com")), ErrStorage)
			}
			require.ErrorIs(t, l.Record(t.Context(), Event{Event: EgressClosed}), ErrStorage)
			assert.False(t, l.Healthy())
			stats := l.Stats()
			assert.False(t, stats.Healthy)
			assert.NotEmpty(t, stats.LastError)
			assert.Equal(t, uint64(4), stats.Dropped)
			assert.Equal(t, uint64(1), stats.LastSeq)
			assert.Equal(t, size, fileSize(t, path), "only whole lines stay in the file")

			fs.heal()
			record(t, l, denied("after.example.com"))
			assert.True(t, l.Healthy())
			closeLog(t, l)

			events := verify(t, path, 0)
			require.Equal(t, []Name{EgressDenied, AuditGap, EgressDenied}, names(events))
			gap := events[1]
			assert.Equal(t, LevelError, gap.Level)
			assert.Equal(t, map[string]int{"egress.denied": 3, "egress.closed": 1}, gap.Gap.Dropped)
			assert.Equal(t, tc.cause, gap.Gap.Cause)
			assert.False(t, gap.Gap.From.IsZero())
			assert.False(t, gap.Gap.To.Before(gap.Gap.From))
			assert.Contains(t, gap.Msg, "4 records could not be written;")
		})
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()

	info, err := os.Stat(path)
	require.NoError(t, err)

	return info.Size()
}

// Of a batch that is cut in the middle, exactly the callers whose lines are whole
// are told so.
func TestFailedWriteInTheMiddleOfABatch(t *testing.T) {
	const callers = 10

	path := logPath(t)
	g := newGate()
	fs := &faultyStorage{onWrite: g.write}
	l := openLog(t, Options{File: path, storage: fs})

	first := make(chan error)
	go func() { first <- l.Record(t.Context(), denied("first.example.com")) }()
	<-g.entered
	// These become one batch, of which four lines and a half arrive.
	fs.set(func(s *faultyStorage) {
		s.onWrite = func(b []byte) (int, error) {
			lines := bytes.SplitAfter(b, []byte("\n"))
			keep := len(bytes.Join(lines[:4], nil)) + len(lines[4])/2

			return keep, errNoSpace
		}
	})
	var stored, lost atomic.Int32
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			err := l.Record(t.Context(), denied(fmt.Sprintf("h%d.example.com", i)))
			if err == nil {
				stored.Add(1)
			} else if assert.ErrorIs(t, err, ErrStorage) {
				lost.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return l.Stats().Queued == callers }, 10*time.Second, time.Millisecond)
	close(g.open)
	require.NoError(t, <-first)
	all.Wait()
	assert.EqualValues(t, 4, stored.Load())
	assert.EqualValues(t, 6, lost.Load())

	fs.heal()
	closeLog(t, l)
	events := verify(t, path, 0)
	require.Len(t, events, 1+4+1, "closing writes the gap record too")
	assert.Equal(t, map[string]int{"egress.denied": 6}, events[5].Gap.Dropped)
}

// Where the torn bytes can't be removed, they are ended and accounted for.
func TestFailedWriteThatCannotBeCutBack(t *testing.T) {
	path := logPath(t)
	fs := &faultyStorage{onTruncate: func() error { return errTrunc }}
	l := openLog(t, Options{File: path, storage: fs})
	record(t, l, denied("before.example.com"))

	fs.failWrites(100, errNoSpace)
	require.ErrorIs(t, l.Record(t.Context(), denied("lost.example.com")), ErrStorage)
	fs.set(func(s *faultyStorage) { s.onWrite = nil })
	record(t, l, denied("after.example.com"))
	closeLog(t, l)

	events := verify(t, path, 1)
	require.Equal(t, []Name{EgressDenied, AuditGap, EgressDenied}, names(events))
	assert.Equal(t, int64(100), events[1].Gap.TornBytes)
	assert.Equal(t, CauseDiskFull, events[1].Gap.Cause)
	assert.Equal(t, map[string]int{"egress.denied": 1}, events[1].Gap.Dropped)
}

// A line of which only the newline is missing becomes a valid record as soon as
// the next write ends it. It must count as written, or two lines would have the
// same number.
func TestFailedWriteOfJustTheNewline(t *testing.T) {
	path := logPath(t)
	fs := &faultyStorage{onTruncate: func() error { return errTrunc }}
	l := openLog(t, Options{File: path, storage: fs})

	fs.set(func(s *faultyStorage) {
		s.onWrite = func(b []byte) (int, error) { return len(b) - 1, errNoSpace }
	})
	require.NoError(t, l.Record(t.Context(), denied("whole.example.com")))
	assert.False(t, l.Healthy())
	fs.set(func(s *faultyStorage) { s.onWrite = nil })
	record(t, l, denied("after.example.com"))
	closeLog(t, l)

	events := verify(t, path, 0)
	assert.Equal(t, []Name{EgressDenied, EgressDenied}, names(events))
}

// A log that nobody writes to, since the gate refuses everything, recovers too,
// and doesn't spin until then.
func TestRecoveryWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		fs := &faultyStorage{}
		l := openLog(t, Options{File: path, storage: fs})
		fs.failWrites(0, errNoSpace)
		require.ErrorIs(t, l.Record(t.Context(), denied("lost.example.com")), ErrStorage)

		time.Sleep(time.Hour)
		synctest.Wait()
		writes, _, _ := fs.count()
		assert.Less(t, writes, 70, "about one attempt a minute")
		assert.Greater(t, writes, 60)

		fs.heal()
		time.Sleep(retryMax)
		synctest.Wait()
		assert.True(t, l.Healthy())
		closeLog(t, l)
		events := verify(t, path, 0)
		require.Equal(t, []Name{AuditGap}, names(events))
		assert.Equal(t, map[string]int{"egress.denied": 1}, events[0].Gap.Dropped)
		assert.InDelta(t, time.Hour.Seconds(), events[0].Gap.To.Sub(events[0].Gap.From).Seconds(), 100)
	})
}

func TestFailedReopen(t *testing.T) {
	path := logPath(t)
	fs := &faultyStorage{}
	l := openLog(t, Options{File: path, storage: fs})
	fs.failWrites(0, errDisk)
	require.ErrorIs(t, l.Record(t.Context(), denied("lost.example.com")), ErrStorage)
	fs.set(func(s *faultyStorage) { s.onOpen = func() error { return errDisk } })
	require.ErrorIs(t, l.Record(t.Context(), denied("lost.example.com")), ErrStorage)

	fs.heal()
	record(t, l, denied("after.example.com"))
	closeLog(t, l)
	events := verify(t, path, 0)
	require.Equal(t, []Name{AuditGap, EgressDenied}, names(events))
	assert.Equal(t, map[string]int{"egress.denied": 2}, events[0].Gap.Dropped)
}

func TestCloseWithUnwrittenGap(t *testing.T) {
	path := logPath(t)
	fs := &faultyStorage{}
	l := openLog(t, Options{File: path, storage: fs})
	fs.failWrites(0, errNoSpace)
	require.ErrorIs(t, l.Record(t.Context(), denied("lost.example.com")), ErrStorage)

	err := l.Close(t.Context())
	require.ErrorIs(t, err, ErrStorage)
	assert.ErrorContains(t, err, "1 record could not be written; cause: the disk is full.")
	closeLog(t, openLog(t, Options{File: path})) // the lock is free
}

func TestFailedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		fs := &faultyStorage{onSync: func() error { return errDisk }}
		l := openLog(t, Options{File: path, Sync: time.Second, storage: fs})
		record(t, l, denied("a.example.com"), denied("b.example.com"))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.False(t, l.Healthy())
		assert.Contains(t, l.Stats().LastError, errDisk.Error())

		// Records are still written, into a new file, behind the gap record.
		record(t, l, denied("c.example.com"))
		assert.False(t, l.Healthy(), "until an fsync succeeds")
		files, err := Files(path)
		require.NoError(t, err)
		require.Len(t, files, 2)

		// If fsync fails in the new file too, further files are no help.
		time.Sleep(time.Hour)
		files, err = Files(path)
		require.NoError(t, err)
		require.Len(t, files, 2)

		fs.heal()
		time.Sleep(retryMax)
		synctest.Wait()
		assert.True(t, l.Healthy())
		assert.Equal(t, l.Stats().LastSeq, l.Stats().SyncedSeq)
		record(t, l, denied("d.example.com"))
		closeLog(t, l)

		events := verify(t, path, 0)
		require.Equal(t, []Name{EgressDenied, EgressDenied, AuditRotated, AuditGap, EgressDenied, AuditGap},
			names(events)[:6])
		assert.Equal(t, 2, events[3].Gap.Unsynced)
		assert.Empty(t, events[3].Gap.Dropped, "they are in the file")
		assert.Equal(t, CauseIOError, events[3].Gap.Cause)
		assert.Equal(t, 3, events[5].Gap.Unsynced, "rotated, gap, c")
		assert.Less(t, len(events), 80, "about one record a minute while fsync fails")
	})
}

func TestFailedSyncAlways(t *testing.T) {
	path := logPath(t)
	fs := &faultyStorage{}
	l := openLog(t, Options{File: path, Sync: SyncAlways, storage: fs})
	record(t, l, denied("a.example.com"))
	fs.set(func(s *faultyStorage) { s.onSync = func() error { return errDisk } })
	require.ErrorIs(t, l.Record(t.Context(), denied("b.example.com")), ErrStorage)
	require.ErrorIs(t, l.Record(t.Context(), denied("c.example.com")), ErrStorage)
	assert.False(t, l.Healthy())
	assert.Zero(t, l.Stats().Dropped)

	fs.heal()
	record(t, l, denied("d.example.com"))
	assert.True(t, l.Healthy())
	closeLog(t, l)

	events := verify(t, path, 0)
	require.Equal(t, []Name{
		EgressDenied, EgressDenied, AuditRotated, AuditGap, EgressDenied, AuditGap, EgressDenied,
	}, names(events))
	assert.Equal(t, 1, events[3].Gap.Unsynced)
	assert.Equal(t, 3, events[5].Gap.Unsynced)
}

func TestFailedSyncAtClose(t *testing.T) {
	path := logPath(t)
	fs := &faultyStorage{onSync: func() error { return errDisk }}
	l := openLog(t, Options{File: path, Sync: time.Hour, storage: fs})
	record(t, l, denied("a.example.com"))
	require.ErrorIs(t, l.Close(t.Context()), errDisk)
	assert.Equal(t, []Name{EgressDenied, AuditRotated, AuditGap}, names(verify(t, path, 0))[:3])
}
