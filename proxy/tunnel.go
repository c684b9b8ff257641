package proxy

import (
	"context"
	"errors"
	"net"
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
	ends := make(chan direction, 2)
	go func() { ends <- relay(f, "client", upstream, client, &f.out) }()
	go func() { ends <- relay(f, "server", client, upstream, &f.in) }()
	first := <-ends
	if first.err != nil {
		// A broken direction ends the other: there is nobody to answer.
		_ = client.SetDeadline(past)
		_ = upstream.SetDeadline(past)
	}
	<-ends
	return endOf(f, first.ended)
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

// direction is how one direction of a tunnel ended.
type direction struct {
	// ended is the side that ended it: the source, or the destination if
	// writing failed.
	ended string
	// err is nil after a clean end of stream, which was passed on.
	err error
}

// relay copies one direction and passes the end of stream on.
func relay(f *flow, source string, dst, src *net.TCPConn, count *atomic.Int64) direction {
	err := copyStream(dst, src, func(n int) {
		count.Add(int64(n))
		f.touch(time.Now())
	})
	switch {
	case err == nil:
		f.halfClosed.CompareAndSwap(0, time.Now().UnixNano())
		// It fails only towards a side that is gone, whose own direction says so.
		_ = dst.CloseWrite()
		return direction{ended: source}
	case errors.Is(err, errWrite):
		return direction{ended: otherSide(source), err: err}
	default:
		return direction{ended: source, err: err}
	}
}

// errWrite marks an error of the destination of a copy.
var errWrite = errors.New("proxy: writing")

func otherSide(side string) string {
	if side == "client" {
		return "server"
	}
	return "client"
}
