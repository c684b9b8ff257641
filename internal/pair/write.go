package pair

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

const (
	folderMode = 0o755
	fileMode   = 0o644
)

// A Refused is a file or folder at our place that is not touched, because it is
// not ours or not safe to follow.
type Refused struct {
	Path, Why, Mend string
}

func (e *Refused) Error() string { return fmt.Sprintf("%s %s: %s", e.Path, e.Why, e.Mend) }

// Write puts content into our file of managed settings, so that a reader finds
// the old or the new file and never a part. It reports whether anything had to be
// written. What is not ours is a [*Refused] error.
func Write(p Places, content []byte) (changed bool, err error) {
	same, err := ownFile(p, content)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, err
	case same:
		return false, nil
	}
	if err := makeFolder(p.DropIns); err != nil {
		return false, err
	}
	// Again, because somebody may have put a link there meanwhile. No test shows
	// it: it only narrows a race that needs the rights of whoever runs this.
	if err := noLinks(p); err != nil {
		return false, err
	}
	return true, replace(p.Own, content)
}

// Remove deletes our file of managed settings and reports whether there was one.
// What is not ours is a [*Refused] error. Folders stay: others may use them.
func Remove(p Places) (removed bool, err error) {
	_, err = ownFile(p, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, os.Remove(p.Own)
}

// ownFile makes sure that what is at our place is ours, and tells whether it is
// the content and mode that [Write] would leave. fs.ErrNotExist: nothing is there.
func ownFile(p Places, content []byte) (same bool, err error) {
	if err := noLinks(p); err != nil {
		return false, err
	}
	info, err := os.Lstat(p.Own)
	if err != nil {
		return false, err
	}
	data, _, err := Disk{}.Read(p.Own, maxFile)
	switch {
	case errors.Is(err, errTooBig), errors.Is(err, errNotRegular):
		return false, &Refused{p.Own, "was not written by sluicegate: " + err.Error(), "move it away, then try again"}
	case err != nil:
		return false, err
	case !isOurs(data):
		return false, &Refused{p.Own, "has keys that sluicegate does not write", "move them to another file of the folder, then try again"}
	}
	return bytes.Equal(data, content) && (runtime.GOOS == "windows" || info.Mode().Perm() == fileMode), nil
}

// noLinks refuses symbolic links at our place: written as root, a file behind one
// could be anybody's.
func noLinks(p Places) error {
	for _, path := range []string{filepath.Dir(p.DropIns), p.DropIns, p.Own} {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			return &Refused{path, "is a symbolic link", "replace it by what it leads to, then try again"}
		case path != p.Own && !info.IsDir():
			return &Refused{path, "is not a folder", "move it away, then try again"}
		}
	}
	return nil
}

// makeFolder makes a folder and those above it, readable for all: the product
// runs as an ordinary user, whatever the umask of the one who installs.
func makeFolder(path string) error {
	_, err := os.Lstat(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if above := filepath.Dir(path); above != path {
		if err := makeFolder(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, folderMode); err != nil {
		return err
	}
	return os.Chmod(path, folderMode)
}

// replace puts a file into place as a whole. The temporary file's name does not
// end in .json, so the product never reads it.
func replace(path string, content []byte) (err error) {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+hex.EncodeToString(random)+".tmp")
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(temporary)
		}
	}()
	if _, err = f.Write(content); err != nil {
		return err
	}
	if runtime.GOOS != "windows" {
		if err = f.Chmod(fileMode); err != nil {
			return err
		}
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(temporary, path); err != nil {
		return err
	}
	// The rename itself, where a folder can be synced. The file is in place
	// either way, so a failure is not one of ours.
	if dir, openErr := os.Open(filepath.Dir(path)); openErr == nil {
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}
