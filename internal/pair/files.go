package pair

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Faults of a path that is there and can't be used.
var (
	errTooBig     = errors.New("it is larger than such a file may be")
	errNotRegular = errors.New("it is not a regular file")
)

// Files reads what others wrote. Absent paths give [fs.ErrNotExist].
type Files interface {
	// Read returns the content of a regular file of at most limit bytes.
	Read(path string, limit int64) ([]byte, fs.FileMode, error)
	// Names lists a folder in the order of the names.
	Names(path string) ([]string, fs.FileMode, error)
}

// Disk is the running system's file system.
type Disk struct{}

var _ Files = Disk{}

// Read implements [Files]. It follows symbolic links, as the product does, and
// does not wait for a pipe.
func (Disk) Read(path string, limit int64) ([]byte, fs.FileMode, error) {
	// Looked at first: opening a pipe would wait for its writer.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular():
		return nil, info.Mode(), errNotRegular
	case info.Size() > limit:
		return nil, info.Mode(), errTooBig
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, info.Mode(), err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errTooBig
	}
	return data, info.Mode(), err
}

// Names implements [Files].
func (Disk) Names(path string) ([]string, fs.FileMode, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	entries, err := os.ReadDir(path)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, info.Mode(), err
}

// cause is an error without the operation and path that a finding names anyway.
func cause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Sprintf("it can not be read: %s", path.Err)
	}
	return err.Error()
}
