package dnsguard

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

// When the next attempt begins beside those that wait.
const (
	// nextServer is the wait before another server is asked, and the time that
	// is left for a good answer when all there was is broken ones.
	nextServer = 400 * time.Millisecond
	// nextRound is the wait before a server is asked again, as a datagram may
	// have been lost; it doubles.
	nextRound = time.Second
	maxRounds = 3
)

// spoiled tells whether an answer can't be used although it seems to be one.
func spoiled(err error) bool { return errors.Is(err, errMalformed) }

// final tells whether an error is about the name: another server says the same.
func final(err error) bool {
	var target *targetError
	return errors.As(err, &target) || errors.Is(err, errLoop)
}

// outcome is what one attempt came to. open says that it waits on.
type outcome struct {
	server int
	answer Answer
	err    error
	open   bool
}

// race asks servers until one answers or all have failed: the next one at once
// when one fails, or when one is silent for a while, and then both may win. The
// first answer ends it. It returns when ctx ends at the latest, and then every
// attempt has ended.
func race(ctx context.Context, ask exchanger, servers []netip.AddrPort, t question) (Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &racing{
		ask: ask, servers: servers, question: t, outcomes: make(chan outcome),
		failures: make([]error, len(servers)), out: make([]bool, len(servers)),
	}
	defer r.wg.Wait()
	defer cancel()
	timer := time.NewTimer(r.start(ctx))
	defer timer.Stop()
	ending := false
	for {
		select {
		case o := <-r.outcomes:
			switch {
			case o.err == nil, final(o.err):
				return o.answer, o.err
			case r.lost(o):
				return Answer{}, r.failure()
			case r.started < len(servers):
				timer.Reset(r.start(ctx))
			case r.onlyFailures() && !ending:
				ending = true
				timer.Reset(nextServer)
			}
		case <-timer.C:
			if ending {
				return Answer{}, r.failure()
			}
			if r.started < maxRounds*len(servers) {
				timer.Reset(r.start(ctx))
			}
		case <-ctx.Done():
			return Answer{}, r.late(ctx)
		}
	}
}

// racing is the state of one race. It belongs to the goroutine of race; the
// attempts only send to outcomes, which nobody closes.
type racing struct {
	ask      exchanger
	servers  []netip.AddrPort
	question question
	outcomes chan outcome
	wg       sync.WaitGroup
	started  int
	// failures has the last failure of each server, out those whose attempt
	// ended with one: they are not asked again.
	failures []error
	out      []bool
}

// start begins the next attempt and returns when the one after it is due.
func (r *racing) start(ctx context.Context) time.Duration {
	n := len(r.servers)
	for r.out[r.started%n] {
		r.started++
	}
	server := r.started % n
	r.started++
	r.wg.Go(func() { r.attempt(ctx, server) })
	if r.started < n {
		return nextServer
	}
	return nextRound << (r.started/n - 1)
}

// attempt asks one server and tells how it went until the race is over.
func (r *racing) attempt(ctx context.Context, server int) {
	send := func(o outcome) {
		o.server = server
		select {
		case r.outcomes <- o:
		case <-ctx.Done():
		}
	}
	defer func() {
		if v := recover(); v != nil {
			send(outcome{err: errPanic})
		}
	}()
	a, err := r.ask(ctx, r.servers[server], r.question, func(err error) { send(outcome{err: err, open: true}) })
	send(outcome{answer: a, err: err})
}

// lost notes a failure and tells whether no server is left.
func (r *racing) lost(o outcome) bool {
	r.failures[o.server] = o.err
	if !o.open {
		r.out[o.server] = true
	}
	for _, out := range r.out {
		if !out {
			return false
		}
	}
	return true
}

// onlyFailures tells whether every server has failed in some way.
func (r *racing) onlyFailures() bool {
	for _, err := range r.failures {
		if err == nil {
			return false
		}
	}
	return true
}

// failure is the first server's, as it is the preferred one.
func (r *racing) failure() error {
	for _, err := range r.failures {
		if err != nil {
			return err
		}
	}
	return errNoAnswer
}

// late is the failure when time is up or the caller has gone.
func (r *racing) late(ctx context.Context) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	return r.failure()
}
