package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sluicegate/policy"
)

// Trigger says what made the store look at the policy again.
type Trigger string

// Triggers.
const (
	TriggerStart  Trigger = "start"
	TriggerWatch  Trigger = "fsnotify"
	TriggerPoll   Trigger = "poll"
	TriggerSignal Trigger = "signal"
	TriggerCLI    Trigger = "cli"
)

// Rejected is a load that was refused.
type Rejected struct {
	Time    time.Time
	Trigger Trigger
	Err     error
}

// loaded is the store's whole state, swapped by one pointer.
type loaded struct {
	Policy
	since time.Time
	// stale says that this is the last good policy from the state folder, not
	// what is on disk now.
	stale bool
	// rejected is the newest refused load; nil when the newest load is in
	// force.
	rejected *Rejected
}

// store holds the effective policy. One goroutine owns loading; readers take the
// pointer. A policy is built completely and then swapped; a bad, missing or
// unreadable one leaves the last good one in force.
type store struct {
	load func() (Policy, error)
	kept *archive
	log  *slog.Logger
	now  func() time.Time
	// changed is called after a swap, rejectedLoad after a refusal, both by the
	// loading goroutine.
	changed      func(old, cur *loaded, t Trigger)
	rejectedLoad func(cur *loaded, r Rejected)

	cur  atomic.Pointer[loaded]
	once sync.Mutex // serialises loads
	// seen is the digest or the error text of the newest load, so that a bad
	// file is reported once, not at every poll.
	seen string
}

// current is never nil after start.
func (s *store) current() *loaded { return s.cur.Load() }

func (s *store) snapshot() *policy.Snapshot { return s.cur.Load().Snapshot }

// start makes the first load: the policy on disk, else the last good one, else
// one that denies everything.
func (s *store) start() {
	s.once.Lock()
	defer s.once.Unlock()
	p, err := s.load()
	now := s.now()
	if err == nil {
		s.seen = p.Snapshot.Digest()
		s.cur.Store(&loaded{Policy: p, since: now})
		s.keep(p)
		return
	}
	s.seen = err.Error()
	cur := &loaded{since: now, stale: true, rejected: &Rejected{now, TriggerStart, err}}
	if last, kerr := s.kept.last(); kerr == nil {
		cur.Policy = last
	} else {
		s.log.Error("there is no last good policy; everything is refused", "error", kerr)
		cur.Policy = Policy{Source: "none"}
	}
	s.cur.Store(cur)
	s.rejectedLoad(cur, *cur.rejected)
}

// errUnchanged is not a failure: the content is what is in force.
var errUnchanged = errors.New("the policy is unchanged")

// errFolderGone is a reload without the folder that the policy came from.
var errFolderGone = errors.New("reading policy: the policy folder is gone: put it back, or restart the gate to use the embedded policy")

// reload loads again. It returns errUnchanged, or the error of a refused load,
// or nil when a new policy is in force.
func (s *store) reload(_ context.Context, t Trigger) error {
	s.once.Lock()
	defer s.once.Unlock()
	old := s.cur.Load()
	p, err := s.load()
	if err == nil && p.Source == SourceEmbedded && old.Source != SourceEmbedded && old.Snapshot != nil {
		// The folder went away while the gate runs: that is a missing policy,
		// not a wish for the embedded one, which may allow more.
		err = errFolderGone
	}
	if err != nil {
		if s.seen == err.Error() && t != TriggerCLI {
			return err
		}
		s.seen = err.Error()
		r := Rejected{s.now(), t, err}
		cur := *old
		cur.rejected = &r
		s.cur.Store(&cur)
		s.rejectedLoad(&cur, r)
		return err
	}
	s.seen = p.Snapshot.Digest()
	if p.Snapshot.Digest() == old.Snapshot.Digest() {
		if old.rejected != nil || old.stale {
			cur := *old
			cur.rejected, cur.stale, cur.Source = nil, false, p.Source
			s.cur.Store(&cur)
		}
		return errUnchanged
	}
	cur := &loaded{Policy: p, since: s.now()}
	s.cur.Store(cur)
	s.keep(p)
	s.changed(old, cur, t)
	return nil
}

func (s *store) keep(p Policy) {
	if err := s.kept.save(p); err != nil {
		s.log.Error("keeping the policy as the last good one", "error", err)
	}
}
