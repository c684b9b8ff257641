package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"
)

// Bounds of the accept loop.
const (
	// maxRefusing is how many connections over the limit are being told so at
	// one time; past that the kernel's queue holds them.
	maxRefusing = 64
	// acceptPause is the wait after a failed accept (out of descriptors).
	acceptPause = 50 * time.Millisecond
	// lingerTime and lingerBytes bound the reading after a refusal, which keeps
	// a reset from overtaking the answer.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// listener is one bound address of a profile.
type listener struct {
	s       *Server
	profile *profileServer
	ln      *net.TCPListener
}

// acceptLoop accepts and hands over; it never works inline, so that no client
// can hold it up.
func (l *listener) acceptLoop() {
	defer l.s.wg.Done()
	refuse := make(chan struct{}, maxRefusing)
	for {
		c, err := l.ln.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			l.s.log.Error("accepting a connection", "profile", l.profile.name, "error", err)
			select {
			case <-time.After(acceptPause):
				continue
			case <-l.s.base.Done():
				return
			}
		}
		s := l.s
		if !l.count() {
			select {
			case refuse <- struct{}{}:
			case <-s.base.Done():
				_ = c.Close()
				return
			}
			s.wg.Add(1)
			go func() {
				defer s.wg.Done()
				defer func() { <-refuse }()
				l.refuseLimit(c)
			}()
			continue
		}
		s.wg.Add(1)
		go l.serve(c)
	}
}

// count takes a place in both counters, or none.
func (l *listener) count() bool {
	if l.s.conns.Add(1) > int64(l.s.cfg.Limits.Connections) {
		l.s.conns.Add(-1)
		return false
	}
	if l.profile.conns.Add(1) > int64(l.s.cfg.Limits.PerProfile) {
		l.profile.conns.Add(-1)
		l.s.conns.Add(-1)
		return false
	}
	return true
}

func (l *listener) refuseLimit(c *net.TCPConn) {
	// A fault here costs one connection, as in serve.
	defer func() {
		if v := recover(); v != nil {
			l.s.panicked(v)
			_ = c.Close()
		}
	}()
	f := l.s.newFlow(l.profile, addrPort(c.RemoteAddr()), Peer{})
	defer f.cancel(nil)
	f.stage = "listener"
	l.s.refuseConn(f, c, policy.ReasonLimit, "")
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

// serve handles one accepted connection until net/http takes it or it ends.
func (l *listener) serve(c *net.TCPConn) {
	s := l.s
	rc := newRequestConn(s.base, c, s.cfg.Limits)
	client := &clientConn{l: l, rc: rc, remote: addrPort(c.RemoteAddr())}
	rc.resume, rc.closed = client.resume, client.closedByServer
	handedOver := false
	defer func() {
		if !handedOver {
			client.end()
		}
	}()
	defer client.recovered()
	client.peer = s.cfg.Identifier.Identify(addrPort(c.LocalAddr()), client.remote)
	// A connection that is opened ahead of its first request may stay silent.
	h, fault := rc.next()
	if s.base.Err() != nil {
		return
	}
	client.head = h
	switch {
	case fault != nil:
		client.refuseFault(h, fault)
	case h == nil:
	case h.isConnect():
		client.connect(h)
	default:
		handedOver = l.profile.hand(client)
	}
}

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
	_ = c.rc.TCPConn.Close()
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
	_ = c.rc.TCPConn.SetDeadline(time.Time{})
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
	r, stop := s.recordSafely(func() *flow {
		if c.current != nil {
			return c.current
		}
		return c.flow(c.head)
	}, policy.ReasonInternal)
	defer stop()
	if !c.rc.released() && s.answer(c.rc.TCPConn, r, "") {
		linger(s.base, c.rc.TCPConn)
	}
}

// panicked logs a panic that was recovered.
func (s *Server) panicked(v any) {
	s.log.Error("panic while serving", "panic", v, "stack", string(debug.Stack()))
}

// recordSafely records the end of a request where nobody would catch a panic. If
// there is one, there is no record, and the answer names none. stop ends the
// flow.
func (s *Server) recordSafely(find func() *flow, reason policy.Reason) (r *refusal, stop func()) {
	stop = func() {}
	defer func() {
		if v := recover(); v != nil {
			s.panicked(v)
			r = s.refuse(&flow{}, policy.ReasonInternal, "", "")
		}
	}()
	f := find()
	stop = func() { f.cancel(nil) }
	return s.recordRefusal(f, reason, ""), stop
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
	c.l.s.refuseConn(f, c.rc.TCPConn, ft.reason, ft.detail)
}

// refuseConn records a refusal, then answers it and closes in order. When the
// record can't be written the client is told so instead.
func (s *Server) refuseConn(f *flow, c *net.TCPConn, reason policy.Reason, detail string) {
	sent := s.answer(c, s.recordRefusal(f, reason, detail), f.method)
	// A shutdown need not wait for what follows.
	s.flows.remove(f)
	if sent {
		linger(s.base, c)
	}
	_ = c.Close()
}

// answer sends a refusal as the last thing on a connection; false if it did not
// get there.
func (s *Server) answer(c *net.TCPConn, r *refusal, method string) bool {
	_ = c.SetWriteDeadline(time.Now().Add(s.cfg.Limits.Handshake))
	if _, err := c.Write(r.wire(method)); err != nil {
		return false
	}
	return c.CloseWrite() == nil
}

// recordRefusal writes the record of a refusal or failure and returns what the
// client is told.
func (s *Server) recordRefusal(f *flow, reason policy.Reason, detail string) *refusal {
	s.refused.Add(1)
	info := reason.Info()
	f.status = statusOf(info)
	record := func() (string, error) { return s.recordDenied(f, reason, detail) }
	if info.Class == policy.ClassUpstream && reason != policy.ReasonAuditUnavailable || info.Class == policy.ClassClose {
		record = func() (string, error) { return s.recordFailed(f, reason) }
	}
	id, err := record()
	if err != nil {
		s.log.Error("audit record lost", "flow", f.id, "reason", reason, "error", err)
		return s.refuse(f, policy.ReasonAuditUnavailable, "", "")
	}
	return s.refuse(f, reason, detail, id)
}
