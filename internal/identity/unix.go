package identity

import (
	"errors"
	"fmt"
	"net"
)

// Unix returns the user at the other end of a connected Unix socket: for an
// accepted connection the one who called connect, for a dialled one the one who
// called listen, as the kernel kept it at that time.
//
// The error is not nil if c is nil or closed or the kernel doesn't answer; Peer
// is then the zero value, so a caller that goes on fails closed. On systems that
// can't be asked yet it returns [HowUnsupported] and no error. It doesn't read
// from c and is safe for concurrent use.
func Unix(c *net.UnixConn) (Peer, error) {
	if c == nil {
		return Peer{}, errors.New("looking up the peer of a unix socket: no connection")
	}
	p, err := unixPeer(c)
	if err != nil {
		return Peer{}, fmt.Errorf("looking up the peer of a unix socket: %w", err)
	}
	return p, nil
}
