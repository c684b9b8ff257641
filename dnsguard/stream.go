package dnsguard

import (
	"errors"
	"net"
	"sync"
	"time"
)

// streamListener is the TCP socket. It accepts no more connections than the
// profile may have.
type streamListener struct {
	*net.TCPListener
	b *binding
}

// Accept implements net.Listener. It fails only when the listener was closed.
func (l *streamListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, err
		case err != nil:
			// Out of descriptors, mostly.
			if !l.b.pauseAfter("accepting a connection", err) {
				return nil, net.ErrClosed
			}
			continue
		}
		// One answer and no more waits for a client that does not read.
		_ = c.SetWriteBuffer(maxMessage)
		if l.b.p.conns.Add(1) <= int64(l.b.s.cfg.Limits.Connections) {
			return &streamConn{TCPConn: c, b: l.b, client: client{addr: addrPort(c.RemoteAddr()), stream: true}}, nil
		}
		l.b.p.conns.Add(-1)
		l.b.s.dropped.Add(1)
		_ = c.Close()
	}
}

// streamConn is one TCP connection. Only its own goroutine reads and writes.
type streamConn struct {
	*net.TCPConn
	b      *binding
	client client
	known  bool // client.peer was looked up
	// current is the message being answered.
	current *packet
	once    sync.Once
}

// RemoteAddr implements net.Conn: it is the current message, as for a datagram.
func (c *streamConn) RemoteAddr() net.Addr {
	if c.current == nil {
		return c.TCPConn.RemoteAddr()
	}
	return c.current
}

// Write implements net.Conn. The library sets no deadline, so a client that
// does not read would stay for ever.
func (c *streamConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return 0, err
	}
	n, err := c.TCPConn.Write(b)
	if err != nil {
		_ = c.SetLinger(0) // nor shall the kernel keep what it does not read
	}
	return n, err
}

// Close implements net.Conn and gives back the place.
func (c *streamConn) Close() error {
	c.once.Do(func() { c.b.p.conns.Add(-1) })
	return c.TCPConn.Close()
}
