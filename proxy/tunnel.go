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
// failed, a limit was passed or the flow was cancelled. greeting goes to the
// client and early to the upstream first. It returns who ended it and why.
// Both connections are closed when it returns.
func (s *Server) tunnel(f *flow, client, upstream *net.TCPConn, greeting, early []byte) (string, policy.Reason) {
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
	if len(early) > 0 {
		n, err := upstream.Write(early)
		f.out.Add(int64(n))
		if err != nil {
			return endOf(f, "server")
		}
	}
	t := &relays{f: f, client: client, upstream: upstream}
	var both sync.WaitGroup
	both.Go(func() { t.relay("client", upstream, client, &f.out) })
	both.Go(func() { t.relay("server", client, upstream, &f.in) })
	both.Wait()
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
	f                *flow
	client, upstream *net.TCPConn
	// first is the side that ended first, noted before the other can follow.
	first atomic.Pointer[string]
}

// relay copies one direction and passes the end of stream on.
func (t *relays) relay(source string, dst, src *net.TCPConn, count *atomic.Int64) {
	err := copyStream(dst, src, func(n int) {
		count.Add(int64(n))
		t.f.touch(time.Now())
	})
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
