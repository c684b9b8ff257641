//go:build unix

package audit

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openRead opens a file of a log for reading. It follows a link, as reading
// through one does no harm, but refuses anything that is not a regular file and
// doesn't wait for the other end of a pipe.
func openRead(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}

	info, err := f.Stat()
	if err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}
