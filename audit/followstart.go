package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// sinceSlack is by how much a file's time may be older than the lines in it, as
// the clock was set back or the file system rounds.
const sinceSlack = time.Minute

// begin opens the file where reading starts and sets start to the first line.
func (f *follower) begin(ctx context.Context) error {
	newest, older, err := f.span()
	if err != nil || newest == nil {
		return err
	}
	info, err := newest.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("reading audit log: %w", err), newest.Close())
	}
	f.cur, f.newest, f.size = newest, newest.info, info.Size()

	if f.o.Last < 0 {
		return f.beginOldest(older)
	}

	var found int
	f.start, found, err = f.back(ctx, f.cur, f.size, f.o.Last)
	for _, r := range slices.Backward(older) {
		if err != nil || found == f.o.Last {
			break
		}
		var n int
		if n, err = f.beginIn(ctx, r, f.o.Last-found); errors.Is(err, fs.ErrNotExist) {
			return nil // somebody cleans up; older ones will be gone too
		}
		found += n
	}

	return err
}

// span returns the newest file of the log, opened, and the rotated ones before it
// that may hold something wanted. newest is nil if there is no log, which is an
// error only without Wait.
func (f *follower) span() (newest *trailFile, older []rotatedFile, err error) {
	dir, base := filepath.Split(f.path)
	newest, err = openTrailFile(dir, base, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading audit log: %w", err)
	}
	older, err = f.listOnce()
	switch {
	case err != nil:
	case newest != nil:
		older = before(dir, older, newest)
	case len(older) > 0: // between a rotation and the first line of the new file
		last := len(older) - 1
		newest, err = openTrailFile(dir, older[last].name, older[last].first)
		older = older[:last]
	case !f.o.Wait:
		err = fmt.Errorf("there is no audit log at %s: %w", f.path, fs.ErrNotExist)
	}
	if err != nil && newest != nil {
		err = errors.Join(err, newest.Close())
	}
	if err != nil {
		return nil, nil, err
	}

	if since := f.o.Filter.Since; !since.IsZero() {
		for len(older) > 0 {
			info, serr := os.Stat(filepath.Join(dir, older[0].name))
			if serr == nil && !info.ModTime().Before(since.Add(-sinceSlack)) {
				break
			}
			older = older[1:]
		}
	}

	return newest, older, nil
}

// before returns those of the rotated files that are older than file, which may
// itself have become one of them since it was opened.
func before(dir string, rotated []rotatedFile, file *trailFile) []rotatedFile {
	number := file.number()
	for i, r := range slices.Backward(rotated) {
		if number > 0 && r.first > number {
			rotated = rotated[:i]

			continue
		}
		info, err := os.Stat(filepath.Join(dir, r.name))
		if err == nil && os.SameFile(info, file.info) {
			return rotated[:i]
		}
	}

	return rotated
}

// beginOldest makes reading start with the oldest of the files.
func (f *follower) beginOldest(older []rotatedFile) error {
	for _, r := range older {
		file, err := openTrailFile(filepath.Dir(f.path), r.name, r.first)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("reading audit log: %w", err)
		}

		return f.begins(file, 0)
	}

	return nil
}

// beginIn makes reading start in a rotated file, at the last want records of it
// that are wanted, and returns how many those are.
func (f *follower) beginIn(ctx context.Context, r rotatedFile, want int) (found int, err error) {
	file, err := openTrailFile(filepath.Dir(f.path), r.name, r.first)
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	var start int64
	if err == nil {
		start, found, err = f.back(ctx, file, info.Size(), want)
	}
	if err != nil || found == 0 {
		return 0, errors.Join(err, file.Close())
	}

	return found, f.begins(file, start)
}

// begins makes file the one where reading starts.
func (f *follower) begins(file *trailFile, start int64) error {
	err := f.close()
	f.cur, f.start = file, start

	return err
}

// back finds the last want records that are wanted in the first size bytes of a
// file. It returns the offset of the first of them and how many there are. If
// there are none, the offset is behind the last whole line.
func (f *follower) back(ctx context.Context, file *trailFile, size int64, want int) (start int64, found int, err error) {
	pos := size
	start = -1
	err = scanBack(contextReaderAt{ctx, file}, size, func(line []byte, length int64, ended bool) bool {
		if ended {
			pos -= length + 1
		} else {
			pos -= length
		}
		if start < 0 {
			start = pos
			if ended {
				start = size
			}
		}
		if found == want {
			return false
		}
		if line != nil && (ended || isIntact(line)) && f.wants(line) {
			found++
			start = pos
		}

		return true
	})

	return max(start, 0), found, err
}

// isIntact reports whether line is a whole record by its hash.
func isIntact(line []byte) bool {
	p, ok := splitLine(line)

	return ok && p.intact()
}

// wants reports whether line is a record that is wanted.
func (f *follower) wants(line []byte) bool {
	if !wellFormed(line) || f.sieve.early(line) || !f.sieve.passes(line) {
		return false
	}
	e, err := Parse(line)

	return err == nil && f.o.Filter.Match(&e)
}

// countLines adds the number of newlines of r to n.
func countLines(r io.Reader, n *int) error {
	buf := make([]byte, readBlock)
	for {
		got, err := r.Read(buf)
		*n += bytes.Count(buf[:got], []byte("\n"))
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading audit log: %w", err)
		}
	}
}

// contextReaderAt ends reading when the context ends. It lives as long as one call.
type contextReaderAt struct {
	ctx context.Context
	r   io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (r contextReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}

	return r.r.ReadAt(p, off)
}
