package proxy

import (
	"net/netip"
	"strings"
	"time"

	"sluicegate/policy"
)

// clientConn is one accepted connection and who is at its other end.
type clientConn struct {
	l      *listener
	rc     *requestConn
	remote netip.AddrPort
	peer   Peer
	// head and current are what is being served outside net/http, nil before it
	// is known.
	head    *head
	current *flow
}

// end closes the connection and gives back its place.
func (c *clientConn) end() {
	_ = c.rc.socket.Close()
	c.rc.release()
	c.done()
}

func (c *clientConn) done() {
	c.l.s.conns.Add(-1)
	c.l.profile.conns.Add(-1)
	c.l.s.wg.Done()
}

// closedByServer runs when net/http is done with the connection for good. A
// request that net/http refused by itself, before any handler saw it, is
// recorded here; parseHead makes sure that there is none.
func (c *clientConn) closedByServer(unseen *head) {
	defer c.done()
	if unseen == nil || c.l.s.base.Err() != nil {
		return
	}
	_, stop := c.l.s.recordSafely(func() *flow { return c.flow(unseen) }, policy.ReasonMalformed)
	stop()
}

// resume serves what net/http must not see: a CONNECT or a fault after earlier
// requests.
func (c *clientConn) resume() {
	defer c.end()
	defer c.recovered()
	_ = c.rc.socket.SetDeadline(time.Time{})
	h, fault := c.rc.takePending()
	c.head = h
	if fault != nil {
		c.refuseFault(h, fault)
		return
	}
	c.connect(h)
}

// recovered turns a panic into the end of one request: it is logged, recorded
// and answered. A client whose tunnel is open gets no answer, only the end.
func (c *clientConn) recovered() {
	v := recover()
	if v == nil {
		return
	}
	s := c.l.s
	s.panicked(v)
	spoken := &flow{}
	r, stop := s.recordSafely(func() *flow {
		if c.current == nil {
			c.current = c.flow(c.head)
		}
		spoken = c.current
		return c.current
	}, policy.ReasonInternal)
	defer stop()
	if !c.rc.released() && s.answer(c.rc.socket, spoken, r) {
		linger(s.base, c.rc.socket)
	}
}

// flow starts a flow for a head, which may be invalid or nil.
func (c *clientConn) flow(h *head) *flow {
	f := c.l.s.newFlow(c.l.profile, c.remote, c.peer)
	f.proto = policy.ProtoHTTP
	if h == nil {
		return f
	}
	f.method, f.dest = h.method, h.dest
	if h.isConnect() {
		f.proto = policy.ProtoConnect
	} else {
		f.scheme = strings.ToLower(schemeOf(h.target))
	}
	if h.target != "" {
		f.targetRaw, f.targetCut = rawTarget(h.target)
	}
	return f
}

func (c *clientConn) refuseFault(h *head, ft *fault) {
	f := c.flow(h)
	defer f.cancel(nil)
	c.current = f
	f.stage = "listener"
	c.l.s.refuseConn(f, c.rc.socket, ft.reason, ft.detail)
}
