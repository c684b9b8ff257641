// Package audittest provides an audit log in memory for tests of other packages.
//
// What is not here: the file, the chain and their failures, which only package
// audit needs to test.
package audittest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluicegate/audit"
)

// waitLimit is how long WaitFor waits. It only passes in a test that fails.
const waitLimit = 10 * time.Second

// Recorder keeps events in memory. The zero value is ready to use, and its
// methods are safe for concurrent use. It must not be copied.
type Recorder struct {
	mu      sync.Mutex
	changed sync.Cond
	events  []audit.Event
	err     error
	invalid error
}

// Invalid is what is wrong with the first event that the shipped schema does not
// allow, nil if there is none.
func (r *Recorder) Invalid() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.invalid
}

// Record keeps e, as [audit.Log.Record] does: with an id, time, level and
// message if e has none, and the next Seq from 1. Like a log that is asked to
// write for a caller who has gone, it keeps e and returns ctx's error if ctx has
// ended. After FailWith it keeps nothing and returns that error.
func (r *Recorder) Record(ctx context.Context, e audit.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.err != nil {
		return r.err
	}

	e.Schema = audit.Schema
	if e.ID == "" {
		e.ID = audit.NewID()
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if e.Level == "" {
		e.Level = audit.LevelInfo
	}
	if e.Msg == "" {
		e.Msg = string(e.Event)
	}
	e.Seq = uint64(len(r.events)) + 1
	if r.invalid == nil {
		if err := validate(&e); err != nil {
			r.invalid = fmt.Errorf("%s, record %d: %w", e.Event, e.Seq, err)
		}
	}
	r.events = append(r.events, e)
	r.cond().Broadcast()

	return ctx.Err()
}

// Events returns what was recorded so far, in order. The slice belongs to the
// caller; what the events point to doesn't.
func (r *Recorder) Events() []audit.Event {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.Clone(r.events)
}

// WaitFor returns the first event, recorded already or yet to come, for which
// match returns true. It fails the test if there is none within ten seconds.
// match must not call methods of the Recorder.
func (r *Recorder) WaitFor(t testing.TB, match func(audit.Event) bool) audit.Event {
	t.Helper()

	late := false
	timer := time.AfterFunc(waitLimit, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		late = true
		r.cond().Broadcast()
	})
	defer timer.Stop()

	r.mu.Lock()
	defer r.mu.Unlock()

	for seen := 0; ; {
		for ; seen < len(r.events); seen++ {
			if match(r.events[seen]) {
				return r.events[seen]
			}
		}
		if late {
			t.Fatalf("no such audit event within %s; recorded: %s", waitLimit, r.summary())
		}
		r.cond().Wait()
	}
}

// FailWith makes Record return err from now on, as a log that can't be written
// does (then err wraps [audit.ErrStorage]). nil makes it work again.
func (r *Recorder) FailWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.err = err
}

// cond returns the condition that an event was added or time is up. r.mu must be
// held.
func (r *Recorder) cond() *sync.Cond {
	if r.changed.L == nil {
		r.changed.L = &r.mu
	}

	return &r.changed
}

// summary lists what was recorded. r.mu must be held.
func (r *Recorder) summary() string {
	if len(r.events) == 0 {
		return "nothing"
	}

	all := make([]string, 0, len(r.events))
	for _, e := range r.events {
		all = append(all, strings.TrimSpace(strings.Join(
			[]string{string(e.Event), e.Decision, e.Reason, e.Dest}, " ")))
	}

	return strings.Join(all, ", ")
}
