package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

const (
	// pollEvery is how often a follower looks for more. Asking costs two system
	// calls, and works the same on every file system, which watching doesn't.
	pollEvery = 200 * time.Millisecond
	// lingerPolls is how many looks in a row must find nothing new in a file that
	// another program moved away before the follower leaves it: the log itself
	// notices that only with a line it writes, and writes into it until then.
	lingerPolls = int(2 * checkEvery / pollEvery)
)

// FollowOptions say what [Follow] reads. The zero value reads nothing that is
// there already and returns at once.
type FollowOptions struct {
	// Filter says which records are wanted.
	Filter Filter
	// Last is how many of the wanted records that are there already are read,
	// the newest ones, from rotated files too. If it is negative, all are.
	Last int
	// Wait makes Follow go on until ctx ends. Otherwise it returns at the end of
	// what was there when it began.
	Wait bool
	// Damaged, if it is not nil, is called for each whole line that is not a
	// record, in the order of the lines.
	Damaged func(Damage)
	// Idle, if it is not nil, is called whenever everything has been read, with
	// Wait at every look. Its error ends Follow.
	Idle func() error
	// Tick, if it is not nil, says when to look for more; otherwise that is every
	// 200 ms. It must not be closed.
	Tick <-chan time.Time
}

// Damage is a line of a log that is not a record.
type Damage struct {
	// File is the base name that the file had when it was opened, Line the number
	// of the line in it, from 1.
	File string
	Line int
	// Err wraps ErrNotRecord or ErrSchema.
	Err error
}

// Follow calls fn for the wanted records of the log at path, in their order, each
// exactly once: first for those that are there, then, with Wait, for those that
// are written. The line is as it stands in the file, without its newline; it and
// the event are only valid during the call.
//
// A rotation neither loses nor repeats a line. A file that is cut is read again
// from its start; one that doesn't exist yet is waited for, like an unfinished
// line. Memory stays bounded whatever the files hold. What Follow reads it
// doesn't verify: see [Verify].
//
// It returns the error of fn or Idle as it is, ctx's error when ctx ends, an
// error that wraps fs.ErrNotExist without Wait if there is no log, or why it
// could not read.
func Follow(ctx context.Context, path string, o FollowOptions, fn func(line []byte, e *Event) error) (err error) {
	f := follower{
		trail: trail{path: path},
		o:     o,
		fn:    fn,
		sieve: newSieve(&o.Filter),
		lines: newLineReader(),
	}
	f.begun = o.Filter.Since.IsZero()
	defer func() {
		if cerr := f.close(); err == nil {
			err = cerr
		}
	}()

	if err = f.begin(ctx); err != nil {
		return err
	}
	tick := o.Tick
	if tick == nil {
		t := time.NewTicker(pollEvery)
		defer t.Stop()
		tick = t.C
	}
	for {
		if err = f.catchUp(ctx); err != nil {
			return err
		}
		if o.Idle != nil {
			if err = o.Idle(); err != nil {
				return err
			}
		}
		if !o.Wait {
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
	}
}

// follower is the state of one Follow.
type follower struct {
	trail
	o     FollowOptions
	fn    func(line []byte, e *Event) error
	sieve *sieve
	lines *lineReader

	// newest is the last file to read without Wait, and size how much of it.
	newest fs.FileInfo
	size   int64

	// start is the offset in cur of the first line that was not passed on. An
	// unfinished line is read again from there each time, as the log may take it
	// back and write another one.
	start int64
	// skip is 0, or how far an unfinished line that is too long for a record was
	// looked through already.
	skip int64
	// counted lines end before the offset countedTo in cur. It goes along with
	// start, or stays behind where reading began in the middle of a file, until
	// the number of a line is asked for.
	counted   int
	countedTo int64

	// begun is false until the first record that is not before Since: damage in
	// front of it is of no interest.
	begun bool
	// quiet counts looks without anything new in a file that was moved away.
	quiet int
}

// catchUp reads everything that is there.
func (f *follower) catchUp(ctx context.Context) error {
	for {
		if f.cur != nil {
			if err := f.read(ctx); err != nil {
				return err
			}
			if !f.o.Wait && os.SameFile(f.cur.info, f.newest) {
				return f.readUnended(false)
			}
		}
		if more, err := f.advance(ctx); !more || err != nil {
			return err
		}
	}
}

// advance goes to the next file, if there is one and cur is complete.
func (f *follower) advance(ctx context.Context) (more bool, err error) {
	if f.cur != nil && f.o.Wait {
		if info, serr := os.Stat(f.path); serr == nil && os.SameFile(info, f.cur.info) {
			return false, nil
		}
		if len(f.ahead) == 0 {
			if err = f.look(); err != nil {
				return false, err
			}
		}
		if f.lost && f.quiet < lingerPolls {
			f.quiet++

			return false, nil
		}
	}

	next, err := f.next()
	if next == nil || err != nil {
		return false, err
	}
	if f.cur != nil {
		// What was written between the last look and the renaming.
		err = f.read(ctx)
		if err == nil {
			err = f.readUnended(true)
		}
		err = errors.Join(err, f.close())
	}
	f.cur = next
	f.rewind()

	return err == nil, err
}

// rewind makes cur be read from its start.
func (f *follower) rewind() {
	f.start, f.skip, f.counted, f.countedTo, f.quiet = 0, 0, 0, 0, 0
}

// read passes on the whole lines of cur behind start.
func (f *follower) read(ctx context.Context) error {
	info, err := f.cur.Stat()
	if err != nil {
		return fmt.Errorf("reading audit log: %w", err)
	}
	size := info.Size()
	if !f.o.Wait && os.SameFile(info, f.newest) {
		size = min(size, f.size)
	}
	if f.wasCut(size) {
		f.rewind()
	}
	if size < f.skip {
		f.skip = 0 // of the unfinished line some was taken back
	}
	from := max(f.start, f.skip)
	if size <= from {
		return nil
	}

	f.lines.reset(io.NewSectionReader(f.cur, from, size-from))
	for pos := from; ; {
		if err = ctx.Err(); err != nil {
			return err
		}
		line, err := f.lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if !line.ended {
			if f.skip > 0 || line.length > maxLine {
				f.skip = pos + line.length
			}

			return nil
		}

		if f.skip > 0 {
			line.text = nil // the end of a line that is too long
		}
		if err = f.pass(line.text); err != nil {
			return err
		}
		pos += line.length + 1
		if f.countedTo == f.start {
			f.counted++
			f.countedTo = pos
		}
		f.start, f.skip, f.quiet = pos, 0, 0
	}
}

// wasCut reports whether cur, now of that size, can't be what was read so far: it
// is shorter, or what ended a line is no newline any more.
func (f *follower) wasCut(size int64) bool {
	if f.start == 0 || size < f.start {
		return f.start > 0
	}
	var end [1]byte
	n, err := f.cur.ReadAt(end[:], f.start-1)

	return n == 1 && err == nil && end[0] != '\n'
}

// readUnended passes on what stands behind the last newline of a file if that is
// a whole record: such a line lacks its newline for good if the write was cut
// short there and the file ended. complete says that nothing will be added to the
// file, so that anything else there is damage.
func (f *follower) readUnended(complete bool) error {
	info, err := f.cur.Stat()
	if err != nil {
		return fmt.Errorf("reading audit log: %w", err)
	}
	n := info.Size() - f.start
	if n <= 0 {
		return nil
	}

	if n <= maxLine {
		line := make([]byte, n)
		if _, err = f.cur.ReadAt(line, f.start); errors.Is(err, io.EOF) {
			return nil // cut this moment
		} else if err != nil {
			return fmt.Errorf("reading audit log: %w", err)
		}
		if isIntact(line) {
			return f.pass(line)
		}
	}
	if complete {
		return f.damaged(ErrNotRecord)
	}

	return nil
}

// pass passes line, which begins at start and is nil if it is too long, to fn if
// it is wanted.
func (f *follower) pass(line []byte) error {
	if line == nil || !wellFormed(line) {
		return f.damaged(ErrNotRecord)
	}
	if f.sieve.early(line) {
		return nil
	}
	f.begun = true
	if !f.sieve.passes(line) {
		return nil
	}

	e, err := Parse(line)
	if err != nil {
		return f.damaged(err)
	}
	if !f.o.Filter.Match(&e) {
		return nil
	}

	return f.fn(line, &e)
}

// damaged reports the line at start.
func (f *follower) damaged(why error) error {
	if f.o.Damaged == nil || !f.begun {
		return nil
	}

	if f.countedTo < f.start {
		err := countLines(io.NewSectionReader(f.cur, f.countedTo, f.start-f.countedTo), &f.counted)
		if err != nil {
			return err
		}
		f.countedTo = f.start
	}
	f.o.Damaged(Damage{File: f.cur.name, Line: f.counted + 1, Err: why})

	return nil
}
