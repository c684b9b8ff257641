package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// fileMode is the mode of a new log: the daemon writes, a group of
	// investigators may read. The umask can take more away.
	fileMode fs.FileMode = 0o640
	// dirMode is the mode of a folder that Open creates.
	dirMode fs.FileMode = 0o700
)

// logFile is what the writer needs of an open log; *os.File has it.
type logFile interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Sync() error
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
}

// storage is the part of the file system that the writer changes. Tests put
// failures in front of the real one.
type storage interface {
	// open opens a log for appending and reading, creating it with mode, and
	// refuses anything but a regular file.
	open(path string, mode fs.FileMode) (logFile, error)
	// stat describes what the path names now, without following a link.
	stat(path string) (fs.FileInfo, error)
	// rename moves a closed log aside.
	rename(from, to string) error
	// syncDir makes a new or changed name in dir durable, where the system can.
	syncDir(dir string) error
}

// osStorage is the real file system.
type osStorage struct{}

func (osStorage) open(path string, mode fs.FileMode) (logFile, error) {
	// The check before opening gives the clear message, and is all there is on
	// Windows; openFlags and the check behind it leave no time in between.
	if info, err := os.Lstat(path); err == nil {
		if err = checkRegular(path, info); err != nil {
			return nil, err
		}
	}

	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|openFlags, mode)
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

func (osStorage) stat(path string) (fs.FileInfo, error) { return os.Lstat(path) }
func (osStorage) rename(from, to string) error          { return os.Rename(from, to) }
func (osStorage) syncDir(dir string) error              { return syncDir(dir) }

// checkRegular returns an error that says how to mend it unless info is of a
// regular file. Through a link, whoever can change the link could send the
// records, or the daemon's right to write, somewhere else.
func checkRegular(path string, info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeSymlink != 0:
		return fmt.Errorf("audit log %s is a symbolic link: "+
			"set audit.file to the file it points to, or remove the link", path)
	case mode.IsDir():
		return fmt.Errorf("audit log %s is a folder: "+
			"set audit.file to a file in it, such as %s", path, filepath.Join(path, "audit.jsonl"))
	default:
		return fmt.Errorf("audit log %s is not a regular file (%s): "+
			"set audit.file to another path, or remove it", path, mode.Type())
	}
}

// lock takes the exclusive lock that says who writes the log at path. It is on a
// file of its own, since the log itself is renamed and replaced. The system
// releases it when the process ends, however it ends; the file stays.
func lock(path string) (io.Closer, error) {
	name := path + ".lock"
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("audit log lock %s is not a regular file: remove it", name)
	}

	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|openFlags, 0o600)
	if err != nil {
		return nil, err
	}
	if err = lockFile(f); err != nil {
		if errors.Is(err, ErrLocked) {
			err = fmt.Errorf("%w: another process holds %s: "+
				"stop it, or give one of the two another audit.file", ErrLocked, name)
		}

		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}
