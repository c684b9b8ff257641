//go:build unix

package audit

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openFlags keep open from following a link and from waiting for the other end
// of a pipe.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// lockFile takes an exclusive lock on f or returns ErrLocked at once.
func lockFile(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		case err != nil:
			return os.NewSyscallError("flock", err)
		}

		return nil
	}
}

// diskFull reports whether err means that there is no room left.
func diskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// syncDir writes the names in dir to the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}

	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		// Some file systems can't sync a folder; nothing can be done there.
		err = nil
	}

	return errors.Join(err, d.Close())
}
