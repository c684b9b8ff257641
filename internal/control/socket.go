package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// probeTimeout is how long an existing socket may take to be connected to. A
// live listener is connected by the kernel at once.
const probeTimeout = time.Second

// socket is the listening socket together with the lock that makes it ours.
type socket struct {
	*net.UnixListener
	path string
	made fs.FileInfo // the file as we made it
	lock *lockFile
}

// claim makes the socket at path, or says who or what is in the way. It changes
// nothing outside the folder of path, which it creates if needed.
func claim(ctx context.Context, path string) (*socket, error) {
	if err := prepareFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	held, err := lock(path + ".lock")
	if errors.Is(err, errLocked) {
		return nil, errRunning(path, nil)
	}
	if err != nil {
		return nil, err
	}
	// From here on no other daemon looks at path, so what is judged stale can be
	// removed without taking away a socket that a second one has just made.
	s, err := bind(ctx, path)
	if err != nil {
		return nil, errors.Join(err, held.release())
	}
	s.lock = held
	return s, nil
}

// bind makes the socket under the lock.
func bind(ctx context.Context, path string) (*socket, error) {
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	ul := l.(*net.UnixListener)
	// Removing is our own job: package net would remove whatever is at the path.
	ul.SetUnlinkOnClose(false)
	made, err := os.Lstat(path)
	if err == nil {
		err = restrict(path)
	}
	if err != nil {
		_ = ul.Close()
		_ = os.Remove(path)
		return nil, fmt.Errorf("closing the control socket to others: %w", err)
	}
	return &socket{UnixListener: ul, path: path, made: made}, nil
}

// removeStale removes the socket that a daemon left behind when it was killed.
// Nothing else is ever removed.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking for an old control socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return failf(ErrUntrustedPath, nil,
			"%s exists and is not a socket: move it away or choose another control socket path", path)
	case !ownedBySelf(info):
		return failf(ErrUntrustedPath, nil,
			"control socket %s belongs to uid %d, not to us: remove it or choose another path", path, owner(info))
	}

	d := net.Dialer{Timeout: probeTimeout}
	c, err := d.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return errRunning(path, nil)
	case isBusy(err):
		return errRunning(path, err)
	case isAbsent(err):
		return nil
	case !isRefused(err):
		return fmt.Errorf("finding out whether a daemon is at the control socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the control socket of a dead daemon: %w", err)
	}
	return nil
}

// unlink removes the socket's file if it is still the one we made.
func (s *socket) unlink() error {
	now, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("removing the control socket: %w", err)
	case !os.SameFile(now, s.made):
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the control socket: %w", err)
	}
	return nil
}
