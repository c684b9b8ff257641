//go:build unix

package control

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// errLocked says that another open file holds the lock.
var errLocked = errors.New("locked")

// lockFile is a held lock. It goes with the process, however that ends.
type lockFile struct{ f *os.File }

// lock creates path if needed and locks it, or returns errLocked at once. The
// folder must have been checked before.
func lock(path string) (*lockFile, error) {
	// O_NOFOLLOW: a link could make us create or change a file elsewhere.
	// O_NONBLOCK: opening a FIFO must not hang.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, failf(ErrUntrustedPath, err, "lock file %s is a symbolic link: remove it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the control socket's lock: %w", err)
	}
	if err := takeLock(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &lockFile{f}, nil
}

func takeLock(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("checking the control socket's lock: %w", err)
	}
	if !info.Mode().IsRegular() || !ownedBySelf(info) {
		return failf(ErrUntrustedPath, nil, "lock file %s is not a regular file of our own: remove it", f.Name())
	}
	// Who can open the file can hold the lock and keep the daemon from starting.
	if err := f.Chmod(0o600); err != nil {
		return fmt.Errorf("closing the control socket's lock to others: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return errLocked
		case err != nil:
			return fmt.Errorf("locking the control socket: %w", err)
		}
		return nil
	}
}

// release gives the lock up. Unlocking first matters: a child that is between
// fork and exec still has the file open.
func (l *lockFile) release() error {
	unlockErr := unix.Flock(int(l.f.Fd()), unix.LOCK_UN)
	return errors.Join(unlockErr, l.f.Close())
}
