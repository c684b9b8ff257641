package control

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// errLocked says that another open file holds the lock.
var errLocked = errors.New("locked")

// lockFile is a held lock. It goes with the process, however that ends.
type lockFile struct{ f *os.File }

// lock creates path if needed and locks it, or returns errLocked at once.
func lock(path string) (*lockFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket's lock: %w", err)
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if err != nil {
		_ = f.Close()
		if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("locking the control socket: %w", err)
	}
	return &lockFile{f}, nil
}

// release gives the lock up.
func (l *lockFile) release() error {
	unlockErr := windows.UnlockFileEx(windows.Handle(l.f.Fd()), 0, 1, 0, &windows.Overlapped{})
	return errors.Join(unlockErr, l.f.Close())
}
