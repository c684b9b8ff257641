package proxy

import (
	"errors"
	"fmt"
	"io"
)

// copyStream copies until the end of src.
func copyStream(dst io.Writer, src socket, moved func(int)) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return fmt.Errorf("%w: %w", errWrite, werr)
			}
			moved(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// closedByPeer can't look without reading here, so a client that leaves while
// its tunnel is being opened is noticed when the dial ends.
func closedByPeer(socket) bool { return false }
