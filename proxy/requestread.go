package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// errFraming ends a body that is not well-formed; the reader of the body sees
// it and aborts the request.
var errFraming = errors.New("proxy: malformed body framing")

// Read implements net.Conn for net/http.
func (rc *requestConn) Read(p []byte) (int, error) {
	for {
		switch {
		case rc.isBroken():
			return 0, io.EOF
		case rc.ready > 0:
			n := copy(p, rc.in[:rc.ready])
			rc.in = rc.in[:copy(rc.in, rc.in[n:])]
			rc.ready -= n
			rc.notePassed()
			return n, nil
		case rc.body.state == bodyLength && len(rc.in) == 0:
			return rc.readBody(p)
		}
		more, err := rc.advance()
		if err != nil {
			return 0, err
		}
		if !more {
			continue
		}
		if err := rc.fillFor(); err != nil {
			return 0, err
		}
	}
}

func (rc *requestConn) isBroken() bool {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.broken
}

// notePassed notes when the last byte of the request in flight was handed out.
func (rc *requestConn) notePassed() {
	if rc.ready > 0 || !rc.body.done() {
		return
	}
	rc.mu.Lock()
	rc.passed = true
	rc.mu.Unlock()
}

// readBody reads a body of known length straight into p: there is nothing to
// validate in it, and uploads would else go through the small head buffer.
func (rc *requestConn) readBody(p []byte) (int, error) {
	if int64(len(p)) > rc.body.left {
		p = p[:rc.body.left]
	}
	rc.mu.Lock()
	_ = rc.socket.SetReadDeadline(rc.bodyDeadlineLocked())
	rc.mu.Unlock()
	n, err := rc.socket.Read(p)
	if n > 0 {
		_, _ = rc.body.step(p[:n])
		rc.notePassed()
	}
	return n, err
}

// advance validates what has arrived. more is true when it takes more bytes.
func (rc *requestConn) advance() (more bool, err error) {
	if !rc.body.done() {
		n, f := rc.body.advance(rc.in)
		rc.ready = n
		if f != nil && n == 0 {
			rc.mu.Lock()
			rc.bodyFault = f
			rc.mu.Unlock()
			return false, errFraming
		}
		return n == 0, nil
	}
	rc.mu.Lock()
	defer rc.mu.Unlock()
	switch {
	case rc.isClosed:
		return false, net.ErrClosed
	case rc.pending:
		return false, io.EOF
	case rc.inFlight && len(rc.in) > 0:
		return false, rc.holdLocked()
	case rc.inFlight:
		// net/http reads ahead to notice a client that leaves.
		return true, nil
	}
	h, n, f := rc.parse()
	switch {
	case h == nil && f == nil:
		return true, nil
	case f != nil || h.isConnect():
		rc.consume(n)
		rc.head, rc.fault, rc.pending = h, f, true
		return false, io.EOF
	}
	rc.letOutLocked(h, n)
	return false, nil
}

// holdLocked waits until the request in flight is answered: the next one has
// arrived and must not be handed out before. net/http gives up its read-ahead
// with a deadline in the past, or closes.
func (rc *requestConn) holdLocked() error {
	for rc.inFlight {
		if rc.isClosed {
			return net.ErrClosed
		}
		if !rc.deadline.IsZero() && !time.Now().Before(rc.deadline) {
			return os.ErrDeadlineExceeded
		}
		rc.wake.Wait()
	}
	return nil
}

// fillFor reads from the socket under the deadline that fits the state: that of
// net/http, shortened for a head that has begun and for a body that stalls.
func (rc *requestConn) fillFor() error {
	rc.mu.Lock()
	d := rc.deadline
	switch {
	case !rc.body.done():
		d = rc.bodyDeadlineLocked()
	case !rc.inFlight && !rc.first.IsZero():
		d = earlier(d, rc.first.Add(rc.limits.Handshake))
	}
	// Under the lock, so that a deadline net/http sets now is not undone.
	_ = rc.socket.SetReadDeadline(d)
	rc.mu.Unlock()
	err := rc.fill()
	if err == nil {
		return nil
	}
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if !rc.inFlight && !rc.isClosed && len(rc.in) > 0 && rc.body.done() {
		// Part of a head arrived: it is answered and recorded, not dropped.
		rc.head, rc.fault, rc.pending = partialHead(rc.in), readFault(err), true
		return io.EOF
	}
	return err
}

// bodyDeadlineLocked is when the next bytes of a body must have come.
func (rc *requestConn) bodyDeadlineLocked() time.Time {
	d := earlier(rc.deadline, time.Now().Add(rc.limits.Idle))
	if !rc.bodyBy.IsZero() {
		d = earlier(d, rc.bodyBy)
	}
	return d
}

// earlier returns the earlier of two times, of which a may be zero for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// SetReadDeadline implements net.Conn.
func (rc *requestConn) SetReadDeadline(t time.Time) error {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.deadline = t
	rc.wake.Broadcast()
	return rc.socket.SetReadDeadline(t)
}

// SetDeadline implements net.Conn.
func (rc *requestConn) SetDeadline(t time.Time) error {
	if err := rc.SetReadDeadline(t); err != nil {
		return err
	}
	return rc.socket.SetWriteDeadline(t)
}
