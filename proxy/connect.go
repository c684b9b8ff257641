package proxy

import (
	"context"
	"time"

	"sluicegate/policy"
)

// established is the whole answer to a CONNECT that is let through: without
// Content-Length or Transfer-Encoding (RFC 9110 section 9.3.6), and with the
// phrase that a few old clients look for.
const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// connect serves one CONNECT request; the connection is used up by it.
func (c *clientConn) connect(h *head) {
	f := c.flow(h)
	defer f.cancel(nil)
	c.current = f
	c.tunnel(f, []byte(established))
}

// tunnel decides about a CONNECT, whether it came by HTTP or by SOCKS, and
// serves it. granted is what the client is told when it is let through.
func (c *clientConn) tunnel(f *flow, granted []byte) {
	s := c.l.s
	f.stage = "policy"
	s.flows.add(f)
	defer s.flows.remove(f)

	f.decision = s.judge(f, nil)
	if !f.decision.Allowed() {
		s.refuseConn(f, c.rc.socket, f.decision.Reason, f.decision.Detail)
		return
	}
	if !s.mayPass() {
		s.refuseConn(f, c.rc.socket, policy.ReasonAuditUnavailable, "")
		return
	}
	if err := s.recordObserved(f); err != nil && !s.cfg.AllowUnrecorded {
		s.log.Error("audit record lost", "flow", f.id, "error", err)
		s.refuseConn(f, c.rc.socket, policy.ReasonAuditUnavailable, "")
		return
	}
	ctx, stopWatching := c.watchClient(f.ctx)
	upstream, found, fail := s.open(ctx, f, f.decision)
	stopWatching()
	f.apply(found)
	if fail != nil {
		s.refuseConn(f, c.rc.socket, fail.reason, fail.detail)
		return
	}
	defer func() { _ = upstream.Close() }()
	check := f.checkOf()
	if check != tlsRequired { // else it is recorded once the hello may pass
		if err := s.recordOpened(f); err != nil && !s.cfg.AllowUnrecorded {
			s.log.Error("audit record lost", "flow", f.id, "error", err)
			s.refuseConn(f, c.rc.socket, policy.ReasonAuditUnavailable, "")
			return
		}
	}
	s.opened.Add(1)
	f.stage = ""
	if f.socks == socksNone {
		f.status = 200
	}
	early := append([]byte(nil), c.rc.in...)
	c.rc.release()
	_ = c.rc.socket.SetDeadline(time.Time{})
	if who, why := s.tunnel(f, c.rc.socket, upstream, granted, early, check); who != "" {
		s.recordClosed(f, who, why)
	}
}

// mayPass tells whether allowed traffic may pass as far as the log goes. While
// the log is broken the refusal's own record is the next attempt to write, so
// that the gate recovers by itself.
func (s *Server) mayPass() bool {
	return s.cfg.AllowUnrecorded || s.cfg.Recorder.Healthy()
}

// watchClient returns a context that ends when the client goes away while its
// tunnel is still being opened, so that abandoned dials don't pile up. A client
// that already sent more bytes is not watched: their end can't be seen without
// reading them.
func (c *clientConn) watchClient(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	if len(c.rc.in) > 0 {
		return ctx, cancel
	}
	_ = c.rc.socket.SetReadDeadline(time.Time{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if closedByPeer(c.rc.socket) {
			cancel()
		}
	}()
	return ctx, func() {
		// Wakes the watcher, which must be gone before the relay reads.
		_ = c.rc.socket.SetReadDeadline(past)
		<-gone
		_ = c.rc.socket.SetReadDeadline(time.Time{})
		cancel()
	}
}
