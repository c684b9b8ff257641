package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unsynced is the real file system without fsync, so that a log can be rotated as
// often as a test wants.
type unsynced struct{ osStorage }

func (s unsynced) open(path string, mode fs.FileMode) (logFile, error) {
	f, err := s.osStorage.open(path, mode)

	return unsyncedFile{f}, err
}

func (unsynced) syncDir(string) error { return nil }

type unsyncedFile struct{ logFile }

func (unsyncedFile) Sync() error { return nil }

// A writer that rotates all the time, and readers that start in the middle of it:
// each of them gets every record from its first one on, once and in order.
func TestFollowRotations(t *testing.T) {
	const (
		writers = 4
		each    = 150
	)

	path := logPath(t)
	l := openLog(t, Options{File: path, MaxSize: 2 << 10, Sync: time.Hour, storage: unsynced{}})
	var end atomic.Uint64 // the number of the last record, once it is known
	starts := []int{-1, 0, 7, 500}
	results := make(chan error, len(starts))
	for _, last := range starts {
		go func() { results <- followUntil(t.Context(), path, last, &end) }()
	}

	var all errgroup
	for range writers {
		all.do(func() error {
			for range each {
				if err := l.Record(t.Context(), denied("example.com")); err != nil {
					return err
				}
			}

			return nil
		})
	}
	require.NoError(t, all.wait())
	record(t, l, denied("last.example.com"))
	end.Store(l.Stats().LastSeq)
	for range starts {
		require.NoError(t, <-results)
	}
	closeLog(t, l)

	files, err := Files(path)
	require.NoError(t, err)
	assert.Greater(t, len(files), 100)
	assert.True(t, verified(t, path).OK())
}

// followUntil follows a log, looking all the time, until it has read the record
// with the number end. The error says which record was lost or doubled.
func followUntil(ctx context.Context, path string, last int, end *atomic.Uint64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := make(chan time.Time)
	go tickAlways(ctx, tick)

	const done = constError("done")
	var before uint64
	err := Follow(ctx, path, FollowOptions{
		Last: last, Wait: true, Tick: tick,
		Damaged: func(d Damage) { cancel() },
		Idle: func() error {
			if before > 0 && before == end.Load() {
				return done
			}

			return nil
		},
	}, func(_ []byte, e *Event) error {
		if before > 0 && e.Seq != before+1 {
			return fmt.Errorf("from the last %d: record %d behind record %d", last, e.Seq, before)
		}
		before = e.Seq

		return nil
	})
	if errors.Is(err, done) {
		return nil
	}

	return err
}

// tickAlways lets a Follow look without a pause.
func tickAlways(ctx context.Context, tick chan<- time.Time) {
	for {
		select {
		case tick <- time.Time{}:
		case <-ctx.Done():
			return
		}
	}
}

// errgroup runs functions and keeps the first error.
type errgroup struct {
	sync.WaitGroup
	once sync.Once
	err  error
}

func (g *errgroup) do(f func() error) {
	g.Go(func() {
		if err := f(); err != nil {
			g.once.Do(func() { g.err = err })
		}
	})
}

func (g *errgroup) wait() error {
	g.Wait()

	return g.err
}
