package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// prepareFolder creates dir if it is missing. Its permissions are inherited, so
// the folder must be below the user's profile or one that the installer closed
// to others; a named pipe, whose permissions are its own, arrives later.
func prepareFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the folder of the control socket: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("checking the folder of the control socket: %w", err)
	}
	if !info.IsDir() {
		return failf(ErrUntrustedPath, nil, "%s is not a plain folder: choose another control socket path", dir)
	}
	return nil
}

// owner returns 0: files have no uid here.
func owner(fs.FileInfo) uint32 { return 0 }

// ownedBySelf returns true: the folder's permissions are the guard.
func ownedBySelf(fs.FileInfo) bool { return true }

// restrict does nothing: the socket inherits the folder's permissions.
func restrict(string) error { return nil }

// isAbsent says whether a dial failed because there is nothing at the path.
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// isRefused says whether a dial failed because nobody listens on the socket.
func isRefused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

// isBusy returns false: a full queue looks like a refusal here; our own daemon's
// lock tells the two apart.
func isBusy(error) bool { return false }
