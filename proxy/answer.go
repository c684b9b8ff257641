package proxy

import (
	"context"
	"runtime/debug"
	"time"

	"sluicegate/policy"
)

// lingerTime and lingerBytes bound the reading after a last answer.
const (
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// refuseConn records a refusal, then answers it and closes in order. When the
// record can't be written the client is told so instead.
func (s *Server) refuseConn(f *flow, c socket, reason policy.Reason, detail string) {
	sent := s.answer(c, f, s.recordRefusal(f, reason, detail))
	// A shutdown need not wait for what follows.
	s.flows.remove(f)
	if sent {
		linger(s.base, c)
	}
	_ = c.Close()
}

// answer sends a refusal as the last thing on a connection; false if it did not
// get there.
func (s *Server) answer(c socket, f *flow, r *refusal) bool {
	_ = c.SetWriteDeadline(time.Now().Add(s.cfg.Limits.Handshake))
	if _, err := c.Write(f.wire(r)); err != nil {
		return false
	}
	return c.CloseWrite() == nil
}

// recordRefusal writes the record of a refusal or failure and returns what the
// client is told.
func (s *Server) recordRefusal(f *flow, reason policy.Reason, detail string) *refusal {
	s.refused.Add(1)
	info := reason.Info()
	if f.status = statusOf(info); reason == policy.ReasonClientClosed || f.socks != socksNone {
		f.status = 0 // nobody is there to see it, or there is no such thing
	}
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

// linger reads what a peer still sends after it was answered, for a while: a
// socket that is closed with unread bytes resets the connection, and the reset
// may overtake the answer.
func linger(base context.Context, c socket) {
	_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	stop := context.AfterFunc(base, func() { _ = c.SetReadDeadline(past) })
	defer stop()
	var sink [4 << 10]byte
	for total := 0; total < lingerBytes; {
		n, err := c.Read(sink[:])
		if err != nil {
			return
		}
		total += n
	}
}
