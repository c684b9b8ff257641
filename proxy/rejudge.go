package proxy

import (
	"net/netip"

	"sluicegate/policy"
)

// standing is what a live request or tunnel was let through with, so that it
// can be judged again.
type standing struct {
	addrs []netip.Addr
	hello *policy.Hello
	// unchecked is a tunnel to port 443 that began without a look at its hello.
	unchecked bool
}

// goLive makes f one that Rejudge sees. It is false when the policy has changed
// since f was judged and no longer allows it: either Rejudge sees f, or this
// sees the new policy, so that no request slips through between the two.
func (s *Server) goLive(f *flow, l standing) bool {
	f.live.Store(&l)
	current := s.cfg.Snapshot()
	return current == f.snapshot || s.stands(f, current)
}

// stands tells whether a policy allows what a live flow was let through with.
// A flow that is still being judged stands: goLive is ahead of it.
func (s *Server) stands(f *flow, snapshot *policy.Snapshot) bool {
	l := f.live.Load()
	if l == nil {
		return true
	}
	d := snapshot.Decide(policy.Request{
		Profile: f.profile, Entitled: f.peer.Entitled, Destination: f.dest, Proto: f.proto,
		Addrs: l.addrs, Hello: l.hello, Local: s.cfg.Local(), Now: s.cfg.testOnlyNow(),
	})
	return d.Allowed() && (!l.unchecked || d.TLSAny)
}

// Rejudge holds every live request and tunnel against the policy of the moment,
// ends those that it no longer allows with the reason revoked, and returns how
// many. Call it after the policy changed and when a permission has expired.
func (s *Server) Rejudge() int {
	snapshot := s.cfg.Snapshot()
	n := 0
	s.flows.each(func(f *flow) {
		// One that is already ending, by an earlier call too, is not ended again.
		if f.ctx.Err() == nil && !s.stands(f, snapshot) {
			f.cancel(&endCause{policy.ReasonRevoked})
			n++
		}
	})
	return n
}
