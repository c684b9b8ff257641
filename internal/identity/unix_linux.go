package identity

import (
	"net"

	"golang.org/x/sys/unix"
)

// unixPeer asks by SO_PEERCRED (unix(7)).
func unixPeer(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		cred, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return Peer{}, err
	}
	if sockErr != nil {
		return Peer{}, sockErr
	}
	// A socket without a peer has pid 0 and uid -1; one of a foreign pid
	// namespace has pid 0 and a true uid, so only the uid tells.
	if cred.Uid == ^uint32(0) {
		return Peer{}, unix.ENOTCONN
	}
	return Peer{UID: cred.Uid, Known: true, How: HowPeerCred}, nil
}
