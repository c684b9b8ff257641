package proxy

import (
	"io"
	"net"
	"time"
)

// claim gives the request in flight to its handler, once. It is nil for a
// request that was not handed out as one: then net/http has read another stream
// than the one that was validated.
func (rc *requestConn) claim() *head {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if !rc.inFlight || rc.claimed {
		return nil
	}
	rc.claimed = true
	return rc.head
}

// answered tells that the reply to the request in flight was written and that
// net/http is about to read the next one.
func (rc *requestConn) answered() {
	rc.mu.Lock()
	rc.inFlight = false
	if !rc.passed {
		rc.broken = true
	}
	rc.mu.Unlock()
	rc.wake.Broadcast()
}

// peekBody looks at what has arrived of the body of the request in flight: all
// of it, perhaps, or a fault. Only its handler may ask, before it reads the body:
// until then nobody reads ahead.
func (rc *requestConn) peekBody(h *head) (all bool, f *fault) {
	if !h.hasBody() {
		return true, nil
	}
	b := rc.body
	in := rc.in[rc.ready:]
	for {
		n, f := b.advance(in)
		if f != nil && n == 0 {
			return false, f
		}
		if in = in[n:]; b.done() || n == 0 {
			return b.done(), nil
		}
	}
}

// hurry limits the wait for what is left of a body that nobody wants.
func (rc *requestConn) hurry(wait time.Duration) {
	rc.mu.Lock()
	rc.bodyBy = time.Now().Add(wait)
	_ = rc.socket.SetReadDeadline(rc.bodyDeadlineLocked())
	rc.mu.Unlock()
}

// hasPassed tells whether the request in flight was handed out as a whole.
func (rc *requestConn) hasPassed() bool {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.passed
}

// faultOfBody returns the fault of the body in flight, nil if there is none.
func (rc *requestConn) faultOfBody() *fault {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.bodyFault
}

// takePending returns what waits for resume.
func (rc *requestConn) takePending() (*head, *fault) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	h, f := rc.head, rc.fault
	rc.pending, rc.head, rc.fault = false, nil, nil
	return h, f
}

// Write implements net.Conn. A client that reads nothing for the idle limit
// loses the connection; net/http alone would wait for ever.
func (rc *requestConn) Write(p []byte) (int, error) {
	_ = rc.socket.SetWriteDeadline(time.Now().Add(rc.limits.Idle))
	return rc.socket.Write(p)
}

// ReadFrom hides the TCPConn's own, which would bypass Write's deadline.
func (rc *requestConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{rc}, r)
}

// CloseWrite implements what net/http looks for before it lingers; a connection
// that will be resumed must stay open.
func (rc *requestConn) CloseWrite() error {
	rc.mu.Lock()
	pending := rc.pending
	rc.mu.Unlock()
	if pending {
		return nil
	}
	return rc.socket.CloseWrite()
}

// Close implements net.Conn. A connection that will be resumed stays open, and
// one whose last answer has just been written until finished, which closes it in
// order.
func (rc *requestConn) Close() error {
	rc.mu.Lock()
	if rc.isClosed {
		rc.mu.Unlock()
		return net.ErrClosed
	}
	rc.isClosed = true
	stays := rc.pending || rc.lingersLocked()
	rc.mu.Unlock()
	rc.wake.Broadcast()
	if stays {
		return nil
	}
	return rc.socket.Close()
}

// lingersLocked tells whether the client may still be sending: its request was
// answered, or not, without another one being awaited.
func (rc *requestConn) lingersLocked() bool {
	return (rc.inFlight || rc.broken) && !rc.aborted && rc.base.Err() == nil
}

// abort makes the end of the connection a reset, for a client that could take
// an orderly one for the end of its response.
func (rc *requestConn) abort() {
	rc.mu.Lock()
	rc.aborted = true
	rc.mu.Unlock()
	if t, ok := rc.socket.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
}

// finished runs when the goroutine of net/http is done with the connection.
func (rc *requestConn) finished() {
	rc.mu.Lock()
	pending, lingers := rc.pending, rc.lingersLocked()
	var unseen *head
	if rc.inFlight && !rc.claimed {
		unseen = rc.head
	}
	rc.mu.Unlock()
	if pending {
		// On a goroutine of its own, whose stack is small.
		go rc.resume()
		return
	}
	if lingers && rc.socket.CloseWrite() == nil {
		linger(rc.base, rc.socket)
	}
	_ = rc.socket.Close()
	rc.closed(unseen)
}
