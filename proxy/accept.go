package proxy

import (
	"errors"
	"net"
	"time"

	"sluicegate/policy"
)

// Bounds of the accept loop.
const (
	// maxRefusing is how many connections over the limit are being told so at
	// one time; past that the kernel's queue holds them.
	maxRefusing = 64
	// acceptPause is the wait after a failed accept (out of descriptors).
	acceptPause = 50 * time.Millisecond
)

// listener is one bound address of a profile.
type listener struct {
	s       *Server
	profile *profileServer
	ln      net.Listener
}

// acceptLoop accepts and hands over; it never works inline, so that no client
// can hold it up.
func (l *listener) acceptLoop() {
	defer l.s.wg.Done()
	refuse := make(chan struct{}, maxRefusing)
	for {
		accepted, err := l.ln.Accept()
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
		s, c := l.s, accepted.(socket)
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

func (l *listener) refuseLimit(c socket) {
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

// serve handles one accepted connection until net/http takes it or it ends.
func (l *listener) serve(c socket) {
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
	client.peer = s.identify(c)
	// A connection that is opened ahead of its first request may stay silent.
	switch first, ok := rc.peek(); {
	case !ok:
		return
	case first == socks5Version:
		client.socks5()
		return
	case first == socks4Version:
		client.socks4()
		return
	}
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
