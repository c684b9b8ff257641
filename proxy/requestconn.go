package proxy

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"sluicegate/policy"
)

const headBuffer = 4 << 10

var bufferPool = sync.Pool{New: func() any {
	b := make([]byte, 0, headBuffer)
	return &b
}}

// past is a deadline that ends a wait at once.
var past = time.Unix(1, 0)

// requestConn is an accepted connection seen as a stream of validated requests.
//
// The gate reads the first head from it with next. If that is not a CONNECT, it
// becomes the net.Conn of a net/http server: Read then hands out a head only
// once it is complete and valid, and after it exactly the bytes that its framing
// says belong to its body. A head that is invalid, late, or a CONNECT is never
// handed out: net/http sees the end of the stream, lets go, and resume gets the
// connection back.
//
// Read is called by one goroutine at a time (net/http takes care of that), the
// other methods by any.
type requestConn struct {
	socket
	limits Limits
	// base ends when the server stops.
	base context.Context
	// resume takes the connection over after net/http let go of it; closed is
	// called when net/http is done with it for good, with the head of a request
	// that no handler saw, else nil.
	resume func()
	closed func(unseen *head)

	// Owned by the reader.
	buf     *[]byte
	in      []byte // received and not handed out
	ready   int    // bytes of in that may be handed out
	scanned int    // bytes of in known to hold no end of a head
	blank   bool   // an empty line before the head was passed over
	body    body
	first   time.Time // when the head being read began to arrive

	mu   sync.Mutex
	wake sync.Cond
	// head is the request in flight or, with pending, the one waiting.
	head *head
	// inFlight is set from the release of a head until the reply was written.
	inFlight bool
	// claimed tells that a handler saw the request in flight, passed that all
	// its bytes were handed out.
	claimed, passed bool
	// broken is set when a reply was written before the request had passed: what
	// follows can't be told from its body, so nothing is handed out any more.
	broken bool
	// pending says that head or fault wait for resume.
	pending bool
	fault   *fault
	// bodyFault is the fault of the body in flight; bodyBy, unless zero, when the
	// rest of it must have come.
	bodyFault *fault
	bodyBy    time.Time
	deadline  time.Time // net/http's read deadline
	isClosed  bool
	aborted   bool
}

func newRequestConn(base context.Context, c socket, l Limits) *requestConn {
	buf := bufferPool.Get().(*[]byte)
	rc := &requestConn{socket: c, limits: l, base: base, buf: buf, in: (*buf)[:0]}
	rc.wake.L = &rc.mu
	return rc
}

// release gives the buffer back; the caller has taken what it needs of in, and
// nobody reads any more.
func (rc *requestConn) release() {
	if rc.buf != nil && cap(rc.in) == headBuffer {
		*rc.buf = (*rc.buf)[:0]
		bufferPool.Put(rc.buf)
	}
	rc.buf, rc.in = nil, nil
}

// released tells whether release was called.
func (rc *requestConn) released() bool { return rc.buf == nil }

// peek waits for the first byte, which tells the protocol, and leaves it there.
// It is false when the stream ends, nothing comes in time, or the server stops.
func (rc *requestConn) peek() (byte, bool) {
	stop := context.AfterFunc(rc.base, func() { _ = rc.socket.SetReadDeadline(past) })
	defer stop()
	_ = rc.socket.SetReadDeadline(time.Now().Add(rc.limits.Handshake))
	if rc.base.Err() != nil || rc.fill() != nil {
		return 0, false
	}
	return rc.in[0], true
}

// await reads until scan finds what it looks for in what has arrived: its n
// bytes, or a fault. Both are zero when the server stops.
func (rc *requestConn) await(by time.Time, scan func([]byte) (int, *fault)) (n int, f *fault) {
	stop := context.AfterFunc(rc.base, func() { _ = rc.socket.SetReadDeadline(past) })
	defer stop()
	for {
		if n, f := scan(rc.in); n > 0 || f != nil {
			return n, f
		}
		_ = rc.socket.SetReadDeadline(by)
		if rc.base.Err() != nil {
			return 0, nil
		}
		switch err := rc.fill(); {
		case err == nil:
		case rc.base.Err() != nil:
			return 0, nil
		default:
			return 0, readFault(err)
		}
	}
}

// next reads the first head. When the stream ends, or nothing comes in time,
// before a byte of a head, head and fault are nil. A server that stops ends it.
func (rc *requestConn) next() (*head, *fault) {
	stop := context.AfterFunc(rc.base, func() { _ = rc.socket.SetReadDeadline(past) })
	defer stop()
	for {
		h, n, f := rc.parse()
		switch {
		case f != nil || h != nil && h.isConnect():
			rc.consume(n)
			return h, f
		case h != nil:
			rc.mu.Lock()
			rc.letOutLocked(h, n)
			rc.mu.Unlock()
			return h, nil
		}
		wait := rc.first
		if wait.IsZero() {
			wait = time.Now()
		}
		_ = rc.socket.SetReadDeadline(wait.Add(rc.limits.Handshake))
		if rc.base.Err() != nil {
			_ = rc.socket.SetReadDeadline(past)
		}
		if err := rc.fill(); err != nil {
			if len(rc.in) == 0 {
				return nil, nil
			}
			return partialHead(rc.in), readFault(err)
		}
	}
}

func readFault(err error) *fault {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return faultOf(policy.ReasonTimeout, "the request did not arrive in time")
	}
	return faultOf(policy.ReasonMalformed, "the connection ended inside the request")
}

// parse looks for a complete head in what has arrived. n is its length. What it
// finds does not depend on how the bytes were cut into segments.
func (rc *requestConn) parse() (h *head, n int, f *fault) {
	if len(rc.in) > 0 && rc.first.IsZero() {
		rc.first = time.Now()
	}
	// RFC 9112 section 2.2: an empty line before a request is ignored, once.
	if !rc.blank {
		switch {
		case len(rc.in) == 1 && rc.in[0] == '\r':
			return nil, 0, nil
		case len(rc.in) >= 2 && rc.in[0] == '\r' && rc.in[1] == '\n':
			rc.in = rc.in[:copy(rc.in, rc.in[2:])]
			rc.blank = true
		}
	}
	if len(rc.in) == 0 {
		return nil, 0, nil
	}
	seen := rc.in[:min(len(rc.in), rc.limits.HeaderBytes)]
	n, f = scanHead(seen, rc.scanned)
	rc.scanned = len(seen)
	switch {
	case f != nil:
		return partialHead(seen), len(rc.in), f
	case n > 0:
		h, f = parseHead(seen[:n])
		return h, n, f
	case len(seen) == rc.limits.HeaderBytes:
		return partialHead(seen), len(rc.in), faultOf(policy.ReasonTooLarge, "the request head is larger than the limit")
	default:
		return nil, 0, nil
	}
}

// consume drops the n bytes of a head that net/http does not get.
func (rc *requestConn) consume(n int) {
	rc.in = rc.in[:copy(rc.in, rc.in[n:])]
	rc.scanned, rc.blank, rc.first = 0, false, time.Time{}
}

// letOutLocked makes the head of n bytes at the start of in the request in
// flight, which Read hands out.
func (rc *requestConn) letOutLocked(h *head, n int) {
	rc.scanned, rc.blank, rc.first = 0, false, time.Time{}
	rc.ready, rc.body = n, bodyOf(h)
	rc.head, rc.inFlight, rc.claimed, rc.passed = h, true, false, false
	rc.bodyFault, rc.bodyBy = nil, time.Time{}
}

// fill reads once from the socket into in.
func (rc *requestConn) fill() error {
	switch {
	case len(rc.in) == 0 && cap(rc.in) > headBuffer:
		// A large head is over: a connection that waits needs no large buffer.
		rc.in = (*rc.buf)[:0]
	case len(rc.in) == cap(rc.in):
		grown := make([]byte, len(rc.in), min(2*cap(rc.in), cap(rc.in)+rc.limits.HeaderBytes))
		copy(grown, rc.in)
		rc.in = grown
	}
	n, err := rc.socket.Read(rc.in[len(rc.in):cap(rc.in)])
	if n > 0 {
		rc.in = rc.in[:len(rc.in)+n]
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
