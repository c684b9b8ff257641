package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// trailTries is how often a step is tried anew because the log was rotated in
// the middle of it. Only a log that rotates faster than its folder can be listed
// needs more, and then the next call goes on.
const trailTries = 8

// trail goes through the files of a log in their order, also while the log is
// being rotated. It knows a file by what it is and not by its name, which changes
// under it. Its methods are not safe for concurrent use.
type trail struct {
	path string
	// cur is the file that is read; nil before the first one.
	cur *trailFile
	// ahead are the rotated files behind cur, as far as they are known.
	ahead []rotatedFile
	// lost is set by look if cur is neither the live file nor a rotated one:
	// another program moved or deleted it.
	lost bool
}

// trailFile is one open file of a log.
type trailFile struct {
	*os.File
	info fs.FileInfo
	// name is the base name under which it was opened.
	name string
	// first is the number in that name, 0 for the live file.
	first uint64
}

// openTrailFile opens a file of a log.
func openTrailFile(dir, name string, first uint64) (*trailFile, error) {
	f, err := openRead(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}

	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return &trailFile{File: f, info: info, name: name, first: first}, nil
}

// next opens the file that follows cur, or the oldest one if cur is nil. It
// returns nil if there is none (yet). The caller owns both files and sets cur.
// As the log closes a file before it renames it, cur then holds all that it ever
// will, unless lost is set.
func (t *trail) next() (*trailFile, error) {
	for range trailTries {
		if len(t.ahead) == 0 {
			if err := t.look(); err != nil {
				return nil, err
			}
		}
		if len(t.ahead) > 0 {
			r := t.ahead[0]
			f, err := openTrailFile(filepath.Dir(t.path), r.name, r.first)
			if errors.Is(err, fs.ErrNotExist) {
				t.ahead = nil // somebody cleans up; see what is left

				continue
			} else if err != nil {
				return nil, fmt.Errorf("reading audit log: %w", err)
			}
			t.ahead = t.ahead[1:]

			return f, nil
		}

		f, err := t.nextLive()
		if f != nil || err != nil {
			return f, err
		}
		if len(t.ahead) == 0 {
			break
		}
	}

	return nil, nil
}

// nextLive opens the live file, if that is not cur. It returns nil if there is
// none, or if files came between, which then are ahead.
func (t *trail) nextLive() (*trailFile, error) {
	f, err := openTrailFile(filepath.Dir(t.path), filepath.Base(t.path), 0)
	if errors.Is(err, fs.ErrNotExist) {
		// It may have been renamed after look; then it is found now for certain.
		return nil, t.look()
	} else if err != nil {
		return nil, fmt.Errorf("reading audit log: %w", err)
	}

	// What is opened may not be what had the name when look was called.
	if t.cur == nil || !os.SameFile(t.cur.info, f.info) {
		if err = t.look(); err == nil && len(t.ahead) == 0 {
			return f, nil
		}
	}

	return nil, errors.Join(err, f.Close())
}

// look finds the rotated files behind cur.
func (t *trail) look() error {
	rotated, sure, err := t.list()
	if err != nil {
		return err
	}
	t.ahead, t.lost = rotated[:sure], false
	if t.cur == nil {
		return nil
	}

	// The newest first, as it mostly is one of them.
	for i, r := range slices.Backward(rotated) {
		info, err := os.Stat(filepath.Join(filepath.Dir(t.path), r.name))
		if err == nil && os.SameFile(info, t.cur.info) {
			t.ahead = rotated[min(i+1, sure):sure]

			return nil
		}
	}

	t.ahead = nil
	if info, err := os.Stat(t.path); err == nil && os.SameFile(info, t.cur.info) {
		return nil
	}
	t.lost = true
	if after := t.cur.number(); after > 0 {
		i, _ := slices.BinarySearchFunc(rotated[:sure], after+1, func(r rotatedFile, n uint64) int {
			return cmp.Compare(r.first, n)
		})
		t.ahead = rotated[i:sure]
	}

	return nil
}

// list returns the rotated files. Of the first sure of them it is certain that
// none is missing in between: a name that changes while the folder is read may
// not be found, neither the old nor the new one, but files are renamed in their
// order, and all before one that was found were renamed before a second reading.
func (t *trail) list() (rotated []rotatedFile, sure int, err error) {
	before, err := t.listOnce()
	if err != nil {
		return nil, 0, err
	}
	if rotated, err = t.listOnce(); err != nil || len(before) == 0 {
		return rotated, 0, err
	}

	sure, found := slices.BinarySearchFunc(rotated, before[len(before)-1], compareRotated)
	if found {
		sure++
	}

	return rotated, sure, nil
}

// compareRotated orders rotated files as rotatedFiles does.
func compareRotated(a, b rotatedFile) int {
	return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.stamp, b.stamp))
}

// listOnce returns the rotated files, none if there is no folder.
func (t *trail) listOnce() ([]rotatedFile, error) {
	rotated, err := rotatedFiles(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	return rotated, err
}

// number returns the number of the file's first line, by its name or else by
// that line; 0 if neither tells.
func (f *trailFile) number() uint64 {
	if f.first > 0 {
		return f.first
	}

	return firstSeq(f)
}

// close closes cur.
func (t *trail) close() error {
	if t.cur == nil {
		return nil
	}
	err := t.cur.Close()
	t.cur = nil

	return err
}
