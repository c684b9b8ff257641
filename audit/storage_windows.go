//go:build windows

package audit

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// openFlags is empty: Windows has no flag against following a link in
// os.OpenFile, so only the check before opening refuses one. Making a link there
// needs a privilege that ordinary users don't have.
const openFlags = 0

// lockFile takes an exclusive lock on f or returns ErrLocked at once.
func lockFile(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, new(windows.Overlapped))
	switch {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return ErrLocked
	case err != nil:
		return os.NewSyscallError("LockFileEx", err)
	}

	return nil
}

// diskFull reports whether err means that there is no room left.
func diskFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) ||
		errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// syncDir does nothing: Windows offers no way to sync a folder, and its file
// systems keep a journal of names.
func syncDir(string) error { return nil }
