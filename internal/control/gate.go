package control

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"sluicegate/internal/identity"
)

// gate is the listener of the HTTP server: it lets only the own user's
// connections through, and only so many at a time.
type gate struct {
	socket   *socket
	own      identity.OwnUser
	identify func(*net.UnixConn) (identity.Peer, error)
	log      *slog.Logger
	slots    chan struct{} // one value per open connection
	closing  chan struct{} // closed by Close
	once     sync.Once
	closeErr error
}

// Accept returns the next connection of the own user. Others are closed without
// reading: not a byte of theirs is parsed, and they take no slot.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.socket.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if !g.admit(c) {
			_ = c.Close()
			continue
		}
		select {
		case g.slots <- struct{}{}:
			return &slotConn{UnixConn: c, slots: g.slots}, nil
		case <-g.closing:
			_ = c.Close()
			return nil, net.ErrClosed
		}
	}
}

// admit says whether the peer is the own user.
func (g *gate) admit(c *net.UnixConn) bool {
	peer, err := g.identify(c)
	if err == nil && g.own.Entitled(peer) {
		return true
	}
	attrs := []slog.Attr{slog.String("path", g.socket.path), slog.Bool("uid_known", peer.Known)}
	if peer.Known {
		attrs = append(attrs, slog.Uint64("uid", uint64(peer.UID)))
	}
	if err != nil {
		attrs = append(attrs, slog.String("err", err.Error()))
	}
	g.log.LogAttrs(context.Background(), slog.LevelWarn, "control connection of another user refused", attrs...)
	return false
}

// Close stops accepting. It may be called more than once.
func (g *gate) Close() error {
	g.once.Do(func() {
		close(g.closing)
		g.closeErr = g.socket.Close()
	})
	return g.closeErr
}

// Addr returns the socket's address.
func (g *gate) Addr() net.Addr { return g.socket.Addr() }

// slotConn gives its slot back when it is closed, however often that is. It
// embeds the concrete type because net/http needs CloseWrite to end an answer
// cleanly while the client still sends.
type slotConn struct {
	*net.UnixConn
	slots chan struct{}
	once  sync.Once
}

var _ interface{ CloseWrite() error } = (*slotConn)(nil)

func (c *slotConn) Close() error {
	err := c.UnixConn.Close()
	c.once.Do(func() { <-c.slots })
	return err
}
