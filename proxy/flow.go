package proxy

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"
)

// flow is one request or tunnel, filled along the way and turned into records
// at the end. Fields are written by the goroutine that serves it, except the
// atomic ones.
type flow struct {
	id      string
	started time.Time

	snapshot *policy.Snapshot
	profile  string
	client   netip.AddrPort
	peer     Peer

	proto     policy.Proto
	method    string
	scheme    string
	targetRaw string
	targetCut bool
	dest      policy.Destination

	// socks is how far a SOCKS conversation is; socksReply overrides the reply
	// code of a request that is not supported.
	socks      socksPhase
	socksReply byte

	decision policy.Decision
	hello    *clientHello // of a tunnel, nil until it is read
	stage    string
	resolved []netip.Addr
	server   netip.AddrPort
	status   int

	// in is what came from the destination, out what went to it.
	in, out atomic.Int64
	// active is the Unix time in nanoseconds of the last byte; halfClosed that
	// of the first end of stream, 0 before.
	active, halfClosed atomic.Int64
	// timed is set while bytes should flow: the idle limits apply.
	timed atomic.Bool

	// live is set once traffic is let through.
	live atomic.Pointer[standing]

	ctx    context.Context
	cancel context.CancelCauseFunc
}

// newFlow starts a flow on the policy of the moment.
func (s *Server) newFlow(p *profileServer, client netip.AddrPort, peer Peer) *flow {
	f := &flow{
		id: audit.NewID(), started: s.cfg.testOnlyNow(), snapshot: s.cfg.Snapshot(),
		profile: p.name, client: client, peer: peer, stage: "policy",
	}
	f.decision.Profile, _ = f.snapshot.Profile(p.name)
	f.ctx, f.cancel = context.WithCancelCause(s.base)
	return f
}

// wire is a refusal as the client of the flow reads it; it may be empty.
func (f *flow) wire(r *refusal) []byte {
	if f.socks != socksNone {
		return f.socksWire(r)
	}
	return r.wire(f.method)
}

// endCause ends a flow from outside; it carries the close reason.
type endCause struct{ reason policy.Reason }

func (e *endCause) Error() string { return "proxy: ended: " + string(e.reason) }

// ended returns the reason a flow was ended from outside, "" if it was not.
func (f *flow) ended() policy.Reason {
	var e *endCause
	if errors.As(context.Cause(f.ctx), &e) {
		return e.reason
	}
	return ""
}

// touch notes that bytes moved.
func (f *flow) touch(now time.Time) { f.active.Store(now.UnixNano()) }

// overdue returns the limit that the flow has passed, "" if none.
func (f *flow) overdue(now time.Time, l Limits) policy.Reason {
	if !f.timed.Load() {
		return ""
	}
	quiet := now.Sub(time.Unix(0, f.active.Load()))
	if half := f.halfClosed.Load(); half != 0 {
		quiet = min(quiet, now.Sub(time.Unix(0, half)))
		if quiet >= l.HalfClosed {
			return policy.ReasonHalfClosedTimeout
		}
	}
	if quiet >= l.Idle {
		return policy.ReasonIdleTimeout
	}
	return ""
}

// flowTable holds every live request and tunnel.
type flowTable struct {
	mu    sync.Mutex
	flows map[*flow]struct{}
	empty chan struct{} // closed and replaced when the last flow leaves
}

func newFlowTable() *flowTable {
	return &flowTable{flows: map[*flow]struct{}{}, empty: make(chan struct{})}
}

func (t *flowTable) add(f *flow) {
	t.mu.Lock()
	t.flows[f] = struct{}{}
	t.mu.Unlock()
}

func (t *flowTable) remove(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.flows, f)
	if len(t.flows) == 0 {
		close(t.empty)
		t.empty = make(chan struct{})
	}
}

func (t *flowTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.flows)
}

// each calls fn for every flow outside the lock.
func (t *flowTable) each(fn func(*flow)) {
	t.mu.Lock()
	all := make([]*flow, 0, len(t.flows))
	for f := range t.flows {
		all = append(all, f)
	}
	t.mu.Unlock()
	for _, f := range all {
		fn(f)
	}
}

// sweep ends flows that passed a limit.
func (t *flowTable) sweep(now time.Time, l Limits) {
	t.each(func(f *flow) {
		if r := f.overdue(now, l); r != "" {
			f.cancel(&endCause{r})
		}
	})
}

// cancelAll ends every flow and returns how many there were.
func (t *flowTable) cancelAll(reason policy.Reason) int {
	n := 0
	t.each(func(f *flow) {
		f.cancel(&endCause{reason})
		n++
	})
	return n
}

// drained returns when no flow is left or ctx ends.
func (t *flowTable) drained(ctx context.Context) error {
	for {
		t.mu.Lock()
		n, empty := len(t.flows), t.empty
		t.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-empty:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
