package dnsguard

import (
	"context"
	"errors"
	"sync"
)

// flights joins look-ups of the same question that are under way: they cost one
// packet, and an attacker who makes many gets one chance to guess an answer (RFC
// 5452 section 5), not many.
type flights struct {
	mu      sync.Mutex
	running map[question]*flight
}

// flight is one look-up and who waits for it.
type flight struct {
	cancel  context.CancelFunc
	waiters int // guarded by flights.mu
	// done is closed by the flight's goroutine once answer and err are set.
	done   chan struct{}
	answer Answer
	err    error
}

// do returns what look says of t, for all who ask meanwhile. The look-up goes on
// while anybody waits, so one caller's end is not the others'. Callers must not
// change the answer's slices.
func (f *flights) do(ctx context.Context, t question, look func(context.Context) (Answer, error)) (Answer, error) {
	f.mu.Lock()
	if f.running == nil {
		f.running = map[question]*flight{}
	}
	one := f.running[t]
	if one == nil {
		one = f.begin(t, look)
	}
	one.waiters++
	f.mu.Unlock()
	select {
	case <-one.done:
		return one.answer, one.err
	case <-ctx.Done():
		f.leave(t, one)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return Answer{}, errNoAnswer
		}
		return Answer{}, ctx.Err()
	}
}

// begin starts a look-up. f.mu is held.
func (f *flights) begin(t question, look func(context.Context) (Answer, error)) *flight {
	ctx, cancel := context.WithCancel(context.Background())
	one := &flight{cancel: cancel, done: make(chan struct{})}
	f.running[t] = one
	go f.fly(ctx, t, one, look)
	return one
}

// fly looks up and tells the waiters. It ends with the look-up, or soon after
// the last waiter has left.
func (f *flights) fly(ctx context.Context, t question, one *flight, look func(context.Context) (Answer, error)) {
	defer func() {
		if v := recover(); v != nil {
			one.err = errPanic
		}
		f.forget(t, one)
		one.cancel()
		close(one.done)
	}()
	one.answer, one.err = look(ctx)
}

func (f *flights) forget(t question, one *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running[t] == one {
		delete(f.running, t)
	}
}

// leave takes a waiter off; with the last one the look-up ends, and nobody joins
// it any more.
func (f *flights) leave(t question, one *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.waiters--
	if one.waiters > 0 {
		return
	}
	one.cancel()
	if f.running[t] == one {
		delete(f.running, t)
	}
}
