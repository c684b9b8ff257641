package audit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecordAfterClose(t *testing.T) {
	path := logPath(t)
	l := openLog(t, Options{File: path})
	record(t, l, denied("example.com"))
	closeLog(t, l)

	require.ErrorIs(t, l.Record(t.Context(), denied("late.example.com")), ErrClosed)
	require.NoError(t, l.Close(t.Context()), "closing again is no error")
	assert.Len(t, verify(t, path, 0), 1)
}

// Every Record that races with Close has either written its line or says that it
// hasn't.
func TestRecordWhileClosing(t *testing.T) {
	for range 20 {
		path := logPath(t)
		l := openLog(t, Options{File: path})

		var (
			all    sync.WaitGroup
			mu     sync.Mutex
			stored = map[string]bool{}
		)
		for i := range 16 {
			all.Go(func() {
				for j := 0; ; j++ {
					dest := fmt.Sprintf("h%d-%d.example.com", i, j)
					err := l.Record(t.Context(), denied(dest))
					mu.Lock()
					stored[dest] = err == nil
					mu.Unlock()
					if err != nil {
						assert.ErrorIs(t, err, ErrClosed)

						return
					}
				}
			})
		}
		require.Eventually(t, func() bool { return l.Stats().LastSeq > 50 }, 10*time.Second, time.Millisecond)
		closeLog(t, l)
		all.Wait()

		want := 0
		for _, ok := range stored {
			if ok {
				want++
			}
		}
		events := verify(t, path, 0)
		assert.Len(t, events, want)
		for _, e := range events {
			assert.True(t, stored[e.Dest], e.Dest)
		}
	}
}

// gate blocks writes until it is opened.
type gate struct {
	entered chan struct{}
	open    chan struct{}
}

func newGate() *gate {
	return &gate{entered: make(chan struct{}, 1), open: make(chan struct{})}
}

func (g *gate) write(b []byte) (int, error) {
	select {
	case g.entered <- struct{}{}:
	default:
	}
	<-g.open

	return len(b), nil
}

func TestRecordOfCallerWhoLeavesIsWritten(t *testing.T) {
	path := logPath(t)
	g := newGate()
	l := openLog(t, Options{File: path, storage: &faultyStorage{onWrite: g.write}})

	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- l.Record(ctx, denied("example.com")) }()
	<-g.entered
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)

	close(g.open)
	// Also if the context has ended before: what happened has happened. The
	// answer may still be there first.
	if err := l.Record(ctx, denied("second.example.com")); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	closeLog(t, l)
	assert.Len(t, verify(t, path, 0), 2)
}

func TestRecordWithFullQueue(t *testing.T) {
	path := logPath(t)
	g := newGate()
	l := openLog(t, Options{File: path, storage: &faultyStorage{onWrite: g.write}})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	one := func() { assert.NoError(t, l.Record(t.Context(), denied("example.com"))) }
	all.Go(one)
	<-g.entered
	for range queueLen {
		all.Go(one)
	}
	require.Eventually(t, func() bool { return l.Stats().Queued == queueLen }, 10*time.Second, time.Millisecond)

	// No room: these callers wait, and their lines are lost when they give up.
	result := make(chan error)
	const lost = 3
	for range lost {
		go func() { result <- l.Record(ctx, denied("lost.example.com")) }()
	}
	cancel()
	for range lost {
		err := <-result
		require.ErrorIs(t, err, ErrStorage)
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.Equal(t, uint64(lost), l.Stats().Dropped)

	close(g.open)
	all.Wait()
	closeLog(t, l)

	events := verify(t, path, 0)
	require.Len(t, events, 1+queueLen+1)
	gap := events[1]
	require.Equal(t, AuditGap, gap.Event, "before the next line")
	assert.Equal(t, map[string]int{string(EgressDenied): lost}, gap.Gap.Dropped)
	assert.Equal(t, CauseIOError, gap.Gap.Cause)
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	path := logPath(t)
	g := newGate()
	l := openLog(t, Options{File: path, storage: &faultyStorage{onWrite: g.write}})
	result := make(chan error)
	go func() { result <- l.Record(t.Context(), denied("example.com")) }()
	<-g.entered

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Close(ctx), context.Canceled)

	close(g.open)
	require.NoError(t, <-result, "closing goes on and writes what waits")
	closeLog(t, l)
	assert.Len(t, verify(t, path, 0), 1)
}
