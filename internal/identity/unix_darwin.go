package identity

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

const hasUserIDs = true

// xucredVersion is XUCRED_VERSION of sys/ucred.h; with another one the layout
// is unknown.
const xucredVersion = 0

// unixPeer asks by LOCAL_PEERCRED (unix(4)).
func unixPeer(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Xucred
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		cred, sockErr = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	})
	if err != nil {
		return Peer{}, err
	}
	if sockErr != nil {
		return Peer{}, sockErr
	}
	if cred.Version != xucredVersion {
		return Peer{}, fmt.Errorf("credentials of version %d, known is %d", cred.Version, xucredVersion)
	}
	return Peer{UID: cred.Uid, Known: true, How: HowLocalPeerCred}, nil
}
