package identity

import (
	"errors"
	"fmt"
	"net/netip"
)

const (
	tcpSupported = true
	hasUserIDs   = true
)

// TCP returns the user who owns the client's end of the TCP connection that we
// accepted: local is our own address, remote is the client's (LocalAddr and
// RemoteAddr of the accepted connection). IPv4-mapped addresses mean IPv4.
//
// It asks the kernel for exactly that socket, takes some microseconds and waits
// for other callers only while all of the few netlink sockets are in use; a
// kernel that doesn't answer costs half a second. Nothing is cached: the answer
// is about now. A client that closed its socket has no owner left (Known is
// false), unless it spoke MPTCP, where the kernel keeps its creator for a while;
// a client on another host has none either.
//
// The error is not nil if the addresses can't name one TCP connection (not
// valid, of two families, zoned) or the kernel can't be asked; Peer is then the
// zero value, so a caller that goes on fails closed. It is safe for concurrent use.
func TCP(local, remote netip.AddrPort) (Peer, error) {
	// The client's socket has the client's address as its source.
	want, err := newConnID(remote, local)
	if err != nil {
		return Peer{}, fmt.Errorf("looking up the peer of %v from %v: %w", local, remote, err)
	}
	found, err := sockets.find(want)
	switch {
	case errors.Is(err, errNoSocket):
		return Peer{How: HowNoSocket}, nil
	case err != nil:
		return Peer{}, fmt.Errorf("looking up the peer of %v from %v: %w", local, remote, err)
	}
	return found.peer(want), nil
}

// peer decides whether the kernel's answer may be believed for the connection
// that was asked about.
func (s sockInfo) peer(want connID) Peer {
	// When the client's socket is gone, the kernel falls back to a listener on
	// its port, which may belong to anybody: hence the comparison.
	if s.id != want {
		return Peer{How: HowNoSocket}
	}
	// Many kernels report uid 0 for a socket without a process (sock_i_uid):
	// a client that sends and closes at once would be taken for root.
	// The states are a list of what is allowed: TIME_WAIT, CLOSE and half-made
	// sockets have no owner, and a SYN_SENT twin of the connection can be made
	// by another user (SO_BINDTODEVICE hides the real one from the look-up).
	if s.inode == 0 || !s.state.owned() {
		return Peer{How: HowOrphaned}
	}
	return Peer{UID: s.uid, Known: true, How: HowSockDiag}
}
