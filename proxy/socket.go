package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// socket is the client's end of a connection: a bare *net.TCPConn or
// *net.UnixConn, so that half-close and the poller are at hand.
type socket interface {
	net.Conn
	CloseWrite() error
	SyscallConn() (syscall.RawConn, error)
}

var (
	_ socket = (*net.TCPConn)(nil)
	_ socket = (*net.UnixConn)(nil)
)

// SocketIdentifier is an Identifier that also finds the peer of a Unix socket.
// Without it there are no Unix listeners.
type SocketIdentifier interface {
	Identifier
	IdentifySocket(c *net.UnixConn) Peer
}

// ListenUnix binds a Unix socket for a profile; mode are its permissions, of
// which whoever may connect still has to be entitled to the profile. A socket
// that a killed process left at the path is replaced, so the caller must make
// sure that no other process serves there; anything else at the path is an
// error. The socket is removed when the server shuts down.
func (s *Server) ListenUnix(ctx context.Context, profile, path string, mode fs.FileMode) error {
	if _, ok := s.cfg.Identifier.(SocketIdentifier); !ok {
		return errors.New("the peers of Unix sockets can not be told on this system")
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is not a socket: move it away", path)
	default:
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		_ = ln.Close()
		return err
	}
	return s.addListener(profile, ln)
}

// identify finds out who is at the other end.
func (s *Server) identify(c socket) Peer {
	if u, ok := c.(*net.UnixConn); ok {
		return s.cfg.Identifier.(SocketIdentifier).IdentifySocket(u)
	}
	return s.cfg.Identifier.Identify(addrPort(c.LocalAddr()), addrPort(c.RemoteAddr()))
}

// clientAddress is the client's address for the record: "unix" for a Unix
// socket, which has none.
func clientAddress(a netip.AddrPort) string {
	if !a.IsValid() {
		return "unix"
	}
	return a.Addr().String()
}
