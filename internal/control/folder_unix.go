//go:build unix

package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// prepareFolder creates dir if it is missing and makes sure that nobody else can
// put, replace or remove anything in it: who can do that can offer our clients a
// socket of his own.
//
// The same goes for the folders above, which decide where dir leads. A group
// that may write to one of them is trusted, as macOS needs for /var/run: that
// hole is left open.
func prepareFolder(dir string) error {
	// Before anything is created, or a link of another user's would make us
	// create it where he likes.
	if err := checkAbove(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the folder of the control socket: %w", err)
	}
	if err := checkFolder(dir); err != nil {
		return err
	}
	// Again, for what has been made since, and for where links lead.
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("checking the folders above the control socket: %w", err)
	}
	return errors.Join(checkAbove(dir), checkAbove(resolved))
}

// checkFolder judges the folder of the socket.
func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("checking the folder of the control socket: %w", err)
	}
	const otherFolder = "use a folder of your own, for example $XDG_RUNTIME_DIR/sluicegate"
	mode := info.Mode()
	switch {
	case mode&fs.ModeSymlink != 0:
		return failf(ErrUntrustedPath, nil,
			"control socket folder %s is a symbolic link: use the folder it points to", dir)
	case !mode.IsDir():
		return failf(ErrUntrustedPath, nil, "%s is not a folder: choose another control socket path", dir)
	case mode&fs.ModeSticky != 0 && mode.Perm()&0o022 != 0:
		// Nobody should be told to take the rights of a shared folder away.
		return failf(ErrUntrustedPath, nil,
			"control socket folder %s is shared with other users (mode %s): %s", dir, octal(mode), otherFolder)
	case !ownedBySelf(info):
		return failf(ErrUntrustedPath, nil,
			"control socket folder %s belongs to uid %d, not to uid %d: %s", dir, owner(info), os.Geteuid(), otherFolder)
	case mode.Perm()&0o022 != 0:
		return failf(ErrUntrustedPath, nil,
			"control socket folder %s is writable by other users (mode %s): run chmod go-w %s", dir, octal(mode), dir)
	}
	return nil
}

// checkAbove judges the folders above dir, as far as they exist.
func checkAbove(dir string) error {
	root, err := os.Stat(string(filepath.Separator))
	if err != nil {
		return fmt.Errorf("checking the folders above the control socket: %w", err)
	}
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		if err := checkAncestor(dir, owner(root)); err != nil {
			return err
		}
	}
	return nil
}

// checkAncestor judges a folder above the socket's own, and the link that leads
// there if it is one. Its owner must be root, the user who runs the daemon or
// rootOwner, the owner of "/": in a user namespace root has another number.
func checkAncestor(dir string, rootOwner uint32) error {
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("checking the folders above the control socket: %w", err)
		}
		if uid := owner(info); uid != 0 && uid != rootOwner && !ownedBySelf(info) {
			return failf(ErrUntrustedPath, nil,
				"%s, above the control socket, belongs to uid %d: choose a path below folders of root or your own", dir, uid)
		}
		mode := info.Mode()
		if mode.IsDir() && mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
			return failf(ErrUntrustedPath, nil,
				"%s, above the control socket, is writable by everybody (mode %s): run chmod o-w %s", dir, octal(mode), dir)
		}
	}
	return nil
}

// octal prints a mode as chmod takes it.
func octal(mode fs.FileMode) string {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return fmt.Sprintf("%04o", bits)
}

// owner returns the uid a file belongs to.
func owner(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// ownedBySelf says whether a file belongs to the user who runs the daemon.
func ownedBySelf(info fs.FileInfo) bool { return owner(info) == uint32(os.Geteuid()) }

// restrict closes the socket to other users. Between bind and here the mode is
// what the umask leaves; the peer's uid is checked from the first connection on.
func restrict(path string) error { return os.Chmod(path, 0o600) }

// isAbsent says whether a dial failed because there is nothing at the path.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// isRefused says whether a dial failed because nobody listens on the socket.
// macOS says the same about a listener whose queue is full; our own daemon's
// lock tells the two apart.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// isBusy says whether a dial failed because the listener's queue is full.
func isBusy(err error) bool { return errors.Is(err, syscall.EAGAIN) }
