package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sluicegate/policy"
)

// tunnel relays between client and upstream until both directions ended, one
// failed, a limit was passed, the flow was cancelled or the client said what the
// check does not let pass. greeting goes to the client and early to the upstream
// first. It returns who ended it and why; "" when it was refused before it was
// open, which is recorded. Both connections are closed when it returns.
func (s *Server) tunnel(f *flow, client socket, upstream *net.TCPConn, greeting, early []byte, check tlsCheck) (string, policy.Reason) {
	f.touch(time.Now())
	f.timed.Store(true)
	defer f.timed.Store(false)
	stop := context.AfterFunc(f.ctx, func() {
		_ = client.SetDeadline(past)
		_ = upstream.SetDeadline(past)
	})
	defer stop()
	defer func() { _ = client.Close() }()
	defer func() { _ = upstream.Close() }()
	if _, err := client.Write(greeting); err != nil {
		return "client", policy.ReasonClientClosed
	}
	g := s.newGuard(f, upstream, check)
	silent, err := g.begin(client, early)
	var refused *helloRefusal
	switch {
	case errors.As(err, &refused):
		s.endTunnel(f, g, client, s.recordTunnelRefusal(f, refused))
		if !g.begun {
			return "", refused.reason
		}
		return "gate", refused.reason
	case err != nil:
		return endOf(f, "server")
	case silent:
		return endOf(f, "client")
	}
	t := &relays{s: s, f: f, client: client, upstream: upstream, guard: g}
	var both sync.WaitGroup
	both.Go(func() { t.safely(t.fromClient) })
	both.Go(func() { t.safely(t.fromServer) })
	both.Wait()
	if v := t.panicked.Load(); v != nil {
		panic(*v) // where it is recovered and recorded
	}
	if t.refused != nil {
		s.endTunnel(f, g, client, t.recorded)
		return "gate", t.refused.reason
	}
	return endOf(f, *t.first.Load())
}

// endOf names the end of a tunnel: the cause from outside, if there was one,
// else the side that closed first.
func endOf(f *flow, side string) (string, policy.Reason) {
	if r := f.ended(); r != "" {
		return "gate", r
	}
	if side == "client" {
		return side, policy.ReasonClientClosed
	}
	return side, policy.ReasonUpstreamClosed
}

// relays are the two directions of a tunnel.
type relays struct {
	f        *flow
	client   socket
	upstream *net.TCPConn
	guard    *helloGuard
	s        *Server
	// refused is set by the client's direction, and recorded whether that could
	// be written.
	refused  *helloRefusal
	recorded bool
	panicked atomic.Pointer[any]
	words    serverWords
	// first is the side that ended first, noted before the other can follow.
	first atomic.Pointer[string]
}

// fromClient copies what the client says, through the guard.
func (t *relays) fromClient() {
	err := copyStream(t.guard, t.client, func(int) { t.f.touch(time.Now()) })
	if err == nil {
		err = t.guard.end()
	}
	if errors.As(err, &t.refused) {
		side := "gate"
		t.first.CompareAndSwap(nil, &side)
		// Before anything that could wait for the client.
		t.recorded = t.s.recordTunnelRefusal(t.f, t.refused)
		_ = t.client.SetReadDeadline(past)
		_ = t.client.SetWriteDeadline(time.Now().Add(lingerTime))
		_ = t.upstream.SetDeadline(past)
		return
	}
	t.ended("client", t.upstream, err)
}

// fromServer copies what the destination says.
func (t *relays) fromServer() {
	err := copyStream(t, t.upstream, func(n int) {
		t.f.in.Add(int64(n))
		t.f.touch(time.Now())
	})
	t.ended("server", t.client, err)
}

// Write implements io.Writer for what the server says. Its first words tell the
// guard what may come of the client.
func (t *relays) Write(p []byte) (int, error) {
	if g := t.guard; g.check != tlsAny && g.server.Load() == serverSilent {
		g.server.Store(t.words.read(p))
	}
	return t.client.Write(p)
}

// safely runs a direction; its panic ends the tunnel and not the program.
func (t *relays) safely(direction func()) {
	defer func() {
		if v := recover(); v != nil {
			t.panicked.CompareAndSwap(nil, &v)
			_ = t.client.SetDeadline(past)
			_ = t.upstream.SetDeadline(past)
		}
	}()
	direction()
}

// ended passes the end of a direction on.
func (t *relays) ended(source string, dst socket, err error) {
	if errors.Is(err, errWrite) {
		source = otherSide(source)
	}
	t.first.CompareAndSwap(nil, &source)
	if err != nil {
		// A broken direction ends the other: there is nobody to answer.
		_ = t.client.SetDeadline(past)
		_ = t.upstream.SetDeadline(past)
		return
	}
	t.f.halfClosed.CompareAndSwap(0, time.Now().UnixNano())
	// It fails only towards a side that is gone, whose own direction says so.
	_ = dst.CloseWrite()
}

// errWrite marks an error of the destination of a copy.
var errWrite = errors.New("proxy: writing")

func otherSide(side string) string {
	if side == "client" {
		return "server"
	}
	return "client"
}
