//go:build unix

package proxy

import (
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// relayBuffer is large enough that a bulk transfer costs few system calls.
const relayBuffer = 64 << 10

var relayPool = sync.Pool{New: func() any {
	b := make([]byte, relayBuffer)
	return &b
}}

// copyStream copies until the end of src. It takes a buffer only when src has
// bytes, so that an idle tunnel holds none: the read is tried inside the
// poller's callback, which returns false to wait for readability.
func copyStream(dst io.Writer, src socket, moved func(int)) error {
	raw, err := src.SyscallConn()
	if err != nil {
		return err
	}
	var (
		buf     *[]byte
		n       int
		readErr error
	)
	try := func(fd uintptr) bool {
		buf = relayPool.Get().(*[]byte)
		for {
			n, readErr = unix.Read(int(fd), *buf)
			if readErr != unix.EINTR {
				break
			}
		}
		if readErr == unix.EAGAIN {
			relayPool.Put(buf)
			buf = nil
			return false
		}
		return true
	}
	for {
		buf = nil
		if err := raw.Read(try); err != nil {
			return err
		}
		if readErr != nil || n <= 0 {
			relayPool.Put(buf)
			return readErr
		}
		_, err := dst.Write((*buf)[:n])
		relayPool.Put(buf)
		if err != nil {
			return fmt.Errorf("%w: %w", errWrite, err)
		}
		moved(n)
	}
}

// closedByPeer waits until the peer has closed (true), has sent bytes, or a
// read deadline passes. It consumes nothing.
func closedByPeer(c socket) (closed bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var one [1]byte
	_ = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		for err == unix.EINTR {
			n, _, err = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		}
		if err == unix.EAGAIN {
			return false
		}
		closed = n == 0 || err != nil
		return true
	})
	return closed
}
