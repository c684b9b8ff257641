package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Files returns the files of the log at path: the rotated ones, oldest first,
// then path itself if it exists. A log that was never written has none. The
// error is that of reading the folder.
func Files(path string) ([]string, error) {
	rotated, err := rotatedFiles(path)
	if err != nil {
		return nil, err
	}

	files := make([]string, 0, len(rotated)+1)
	for _, r := range rotated {
		files = append(files, filepath.Join(filepath.Dir(path), r.name))
	}
	if _, err = os.Lstat(path); err == nil {
		files = append(files, path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing audit files: %w", err)
	}

	return files, nil
}

// rotatedFile is the name of a file that was moved aside and what it says.
type rotatedFile struct {
	name  string
	stamp string
	first uint64
}

// rotatedFiles returns the rotated siblings of path, oldest first. Order is by
// the number of the first line and not by the time: a clock can be set back.
func rotatedFiles(path string) ([]rotatedFile, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("listing audit files: %w", err)
	}

	stem, ext := splitName(path)
	pattern := regexp.MustCompile("^" + regexp.QuoteMeta(stem) +
		`-([0-9]{8}T[0-9]{6}Z)-([0-9]{12,20})` + regexp.QuoteMeta(ext) + "$")

	var files []rotatedFile
	for _, entry := range entries {
		m := pattern.FindStringSubmatch(entry.Name())
		if m == nil || !entry.Type().IsRegular() {
			continue
		}
		first, perr := strconv.ParseUint(m[2], 10, 64)
		if perr != nil {
			continue
		}
		files = append(files, rotatedFile{name: entry.Name(), stamp: m[1], first: first})
	}
	slices.SortFunc(files, func(a, b rotatedFile) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.stamp, b.stamp))
	})

	return files, nil
}

// splitName returns the base name of path in two parts: audit and .jsonl.
func splitName(path string) (stem, ext string) {
	base := filepath.Base(path)
	ext = filepath.Ext(base)

	return strings.TrimSuffix(base, ext), ext
}

// Skipped says what [Scan] did not pass on.
type Skipped struct {
	// Overlong counts lines that are longer than any record can be.
	Overlong int
	// TornBytes is the length of an unfinished line at the end; 0 if the last
	// line is whole. In a log that is being written it is no fault.
	TornBytes int64
}

// Scan calls fn for each whole line of r, in order, without its newline. The
// slice is only valid during the call. Memory stays bounded whatever r holds:
// lines that are too long to be records, and bytes behind the last newline, are
// not passed to fn but counted.
//
// It returns fn's error as it is, or the wrapped error of reading r.
func Scan(r io.Reader, fn func(line []byte) error) (Skipped, error) {
	var (
		s   Skipped
		br  = bufio.NewReaderSize(r, maxLine+1)
		cut int64 // bytes of an overlong line so far
	)
	for {
		line, err := br.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			cut += int64(len(line))
		case errors.Is(err, io.EOF):
			s.TornBytes = cut + int64(len(line))

			return s, nil
		case err != nil:
			return s, fmt.Errorf("reading audit log: %w", err)
		case cut > 0:
			cut = 0
			s.Overlong++
		default:
			if err = fn(line[:len(line)-1]); err != nil {
				return s, err
			}
		}
	}
}

// Parse decodes a line, with or without its newline. Keys it doesn't know are
// ignored, as a newer program of the same schema may have written them. It
// doesn't check the hash; see [CheckLine].
//
// The error wraps ErrSchema if the line is an object of another schema, and
// ErrNotRecord if it is no object at all.
func Parse(line []byte) (Event, error) {
	var e Event
	err := json.Unmarshal(line, &e)

	// A later schema may have changed types too, so its name says more than
	// the error that follows from it.
	if typeErr := (*json.UnmarshalTypeError)(nil); err == nil || errors.As(err, &typeErr) {
		if e.Schema != Schema {
			return Event{}, fmt.Errorf("%w: %q, want %q", ErrSchema, e.Schema, Schema)
		}
	}
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrNotRecord, err)
	}

	return e, nil
}

// errFound ends a scan that has what it wanted.
const errFound constError = "found"

// Find returns the line of the event with exactly this id in the log at path,
// without its newline, looking through the newest file first. ok is false if
// there is none. Lines that can't be parsed are passed over.
func Find(ctx context.Context, path, id string) (line []byte, ok bool, err error) {
	// A rotation during the search moves what was the live file to a name that
	// is not in the list; the second round looks into the new names only.
	seen := map[string]bool{}
	for range 2 {
		files, err := Files(path)
		if err != nil {
			return nil, false, err
		}

		for _, file := range slices.Backward(files) {
			if seen[file] && file != path {
				continue
			}
			seen[file] = true
			line, err = findIn(ctx, file, id)
			if err != nil {
				return nil, false, err
			}
			if line != nil {
				return line, true, nil
			}
		}
	}

	return nil, false, nil
}

// findIn returns a copy of the line with the id in one file, nil if there is
// none or the file is gone.
func findIn(ctx context.Context, file, id string) (found []byte, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("searching audit log: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	// What the line holds literally; only lines that have it are parsed.
	literal, _ := appendQuoted([]byte(`"id":`), id, MaxRecord, MaxRecord)
	_, err = Scan(contextReader{ctx, f}, func(line []byte) error {
		if !bytes.Contains(line, literal) {
			return nil
		}
		if e, perr := Parse(line); perr != nil || e.ID != id {
			return nil
		}
		found = bytes.Clone(line)

		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}

	return found, err
}

// contextReader ends reading when the context ends. It lives as long as one call.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}

	return r.r.Read(p)
}
