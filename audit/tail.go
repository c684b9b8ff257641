package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxLine is the longest line that readers look at. It is twice what is written,
// so that a longer one is surely not ours.
const maxLine = 2 * MaxRecord

// tail is what the end of a log says about where to go on.
type tail struct {
	// found says whether there is a valid record at all; link, event and at
	// are those of the last one.
	found bool
	link  Link
	event Name
	at    time.Time

	// torn is the length of the unfinished line at the end. It is zero if the
	// last line is a whole record that lacks nothing but its newline.
	torn int64
	// bad counts whole lines behind the last valid record.
	bad int
}

// damaged reports whether something stands behind the last valid record.
func (t *tail) damaged() bool { return t.torn > 0 || t.bad > 0 }

// readTail finds the last valid record of the first size bytes of r: one of this
// schema whose own hash is right. It reads from the end and stops there, so a
// sound log costs one block, whatever its size.
func readTail(r io.ReaderAt, size int64) (t tail, err error) {
	err = scanBack(r, size, func(line []byte, length int64, ended bool) bool {
		if p, ok := splitLine(line); ok && p.intact() {
			if e, perr := Parse(line); perr == nil {
				t.found, t.link, t.event, t.at = true, p.link, e.Event, e.Time

				return false
			}
		}

		if ended {
			t.bad++
		} else {
			t.torn = length
		}

		return true
	})

	return t, err
}

// scanBack calls fn for the lines of the first size bytes of r, the last one
// first, until fn returns false. line is without its newline and only valid
// during the call; it is nil if it is longer than maxLine. length is its real
// length. ended is false for bytes at the end that no newline follows.
func scanBack(r io.ReaderAt, size int64, fn func(line []byte, length int64, ended bool) bool) error {
	const block = 64 << 10

	var (
		buf    = make([]byte, block)
		rest   []byte // the end of a line whose start is in an earlier block
		length int64  // of that line so far, also what rest doesn't hold
		ended  bool
	)
	for pos := size; pos > 0; {
		n := min(pos, block)
		pos -= n
		b := buf[:n]
		if _, err := r.ReadAt(b, pos); err != nil {
			return fmt.Errorf("reading the end of the log: %w", err)
		}

		for {
			at := bytes.LastIndexByte(b, '\n')
			part := b[at+1:]
			length += int64(len(part))
			if length <= maxLine {
				rest = append(append(make([]byte, 0, length), part...), rest...)
			} else {
				rest = nil
			}
			if at < 0 {
				break
			}

			// The bytes behind the last newline are a line only if there are any.
			if (ended || length > 0) && !fn(rest, length, ended) {
				return nil
			}
			rest, length, ended = nil, 0, true
			b = b[:at]
		}
	}
	if length > 0 || ended {
		fn(rest, length, ended)
	}

	return nil
}

// firstSeq returns the number of the first line of r, or 0 if that is not a
// record.
func firstSeq(r io.ReaderAt) uint64 {
	buf := make([]byte, maxLine)
	n, err := r.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}

	line, _, ok := bytes.Cut(buf[:n], []byte("\n"))
	if !ok {
		return 0
	}
	p, _ := splitLine(line)

	return p.link.Seq
}
