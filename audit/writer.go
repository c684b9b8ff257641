package audit

import (
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"runtime"
	"time"
)

const (
	// maxBatch is how many bytes of lines one write takes at most.
	maxBatch = 256 << 10
	// checkEvery is the shortest time between two looks at the path.
	checkEvery = time.Second
	// retryMin and retryMax bound the time between two attempts of the writer's
	// own to recover; lines that arrive in between are attempts too.
	retryMin = time.Second
	retryMax = time.Minute
)

// writer owns the file. Its methods run in one goroutine, at first Open's, then
// run's.
//
// What it has to say itself (a rotation, a loss) are its notes. They stay due
// until a write that holds them has succeeded, and always go in front of the
// next line.
type writer struct {
	log    *Log
	fs     storage
	lock   io.Closer
	logger *slog.Logger
	now    func() time.Time

	path    string
	maxSize int64
	sync    time.Duration
	mode    fs.FileMode

	sealer *sealer
	// last is the last whole line in the file.
	last Link

	// file is nil while the log can't be opened and between two files. The
	// fields below it describe it.
	file logFile
	info fs.FileInfo
	size int64
	// first is the number of the file's first line, 0 if it has none.
	first uint64
	// fresh: the file holds no line but audit.rotated, so rotating is no use.
	fresh bool
	// unended: the file doesn't end in a newline; the next write begins with one.
	unended bool
	checked time.Time
	// rotateAfter is when to try again after a rotation that failed.
	rotateAfter time.Time

	// Notes that are due.
	rotated *Rotation
	loss    loss

	syncer syncer

	writeFailing bool
	retry        *time.Timer
	retryArmed   bool
	retryDelay   time.Duration

	// Scratch, to spare allocations.
	entries []*entry
	lines   []line
	buf     []byte
	enc     encoder
}

// line is one line of the buffer that is being written.
type line struct {
	// end is the offset behind its newline.
	end   int
	link  Link
	event Name
	// entry is nil for a note.
	entry *entry
}

// newWriter returns a writer without a file; see recover.
func newWriter(l *Log, o Options, lock io.Closer) *writer {
	return &writer{
		log:        l,
		fs:         o.storage,
		lock:       lock,
		logger:     o.Logger,
		now:        o.Now,
		path:       o.File,
		maxSize:    o.MaxSize,
		sync:       o.Sync,
		mode:       fileMode,
		sealer:     newSealer(),
		syncer:     newSyncer(),
		retry:      stoppedTimer(),
		retryDelay: retryMin,
	}
}

// stoppedTimer returns a timer that doesn't run.
func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()

	return t
}

// run serves the log until it is closed.
func (w *writer) run() {
	defer close(w.log.stopped)

	look := time.NewTicker(checkEvery)
	defer look.Stop()
	for {
		select {
		case en := <-w.log.queue:
			w.serve(en)
		case <-w.syncer.due.C:
			w.startSync()
		case err := <-w.syncer.done:
			w.finishSync(err)
		case <-w.retry.C:
			w.recoverHealth()
		case <-look.C:
			w.lookAfter()
		case <-w.log.look:
			w.lookAfter()
		case <-w.log.quit:
			w.log.closeErr = w.finish()

			return
		}
	}
}

// serve writes en and all the lines that wait behind it.
func (w *writer) serve(en *entry) {
	if len(w.entries) > 1 {
		// There was more than one line the last time. Let the callers that are
		// about to queue one do so, and share the write, which costs far more.
		runtime.Gosched()
	}

	w.entries = append(w.entries[:0], en)
	for size := len(en.enc.buf); size < maxBatch; {
		select {
		case en = <-w.log.queue:
			w.entries = append(w.entries, en)
			size += len(en.enc.buf)

			continue
		default:
		}

		break
	}

	w.checkFile()
	w.store(w.entries)
}

// store writes the notes that are due, then entries in order, and answers each.
func (w *writer) store(entries []*entry) {
	w.takeLost()
	for {
		if err := w.ready(); err != nil {
			w.fail(entries, err)

			return
		}
		if w.mustRotate(entries) {
			w.rotate()

			continue
		}

		n := w.build(entries)
		if len(w.buf) == 0 {
			return
		}
		stored, err := w.write()
		if err != nil {
			// First the failure, so that who gets an answer sees it.
			w.fail(entries[stored:], err)
			answer(entries[:stored], nil)

			return
		}

		if w.sync == SyncAlways {
			if err = w.syncNow(); err != nil {
				err = fmt.Errorf("%w: %w", ErrStorage, err)
			}
		}
		answer(entries[:n], err)
		entries = entries[n:]
		if len(entries) == 0 {
			return
		}
	}
}

// answer tells the callers of entries what became of them. An entry must not be
// touched afterwards.
func answer(entries []*entry, err error) {
	for _, en := range entries {
		en.done <- err
	}
}

// fits reports whether n more bytes of bodies keep the file within its size.
func (w *writer) fits(n int) bool {
	return w.size+int64(len(w.buf)+n+sealMax) <= w.maxSize
}

// build fills the buffer with the notes that are due and as many entries as the
// file has room for, at least one. It returns how many.
func (w *writer) build(entries []*entry) (n int) {
	w.buf, w.lines = w.buf[:0], w.lines[:0]
	if w.unended {
		w.buf = append(w.buf, '\n')
	}

	w.buildNotes()
	onHold := w.rotationOnHold()
	for i, en := range entries {
		if i > 0 && !onHold && !w.fits(len(en.enc.buf)) {
			break
		}
		w.add(en.event, en.enc.buf, en)
		n++
	}

	return n
}

// add seals body and appends it to the buffer.
func (w *writer) add(event Name, body []byte, en *entry) {
	prev := w.last
	if len(w.lines) > 0 {
		prev = w.lines[len(w.lines)-1].link
	}

	var link Link
	w.buf, link = w.sealer.seal(w.buf, body, prev)
	w.lines = append(w.lines, line{end: len(w.buf), link: link, event: event, entry: en})
}

// write writes the buffer with one call and returns how many entries are in the
// file: all of them, unless there is an error.
func (w *writer) write() (stored int, err error) {
	n, err := w.file.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return w.repair(n, causeOf(err)), fmt.Errorf("writing audit log: %w", err)
	}

	w.size += int64(n)
	w.unended = false
	stored = w.commit(w.lines)
	w.writeFailing = false
	w.setHealth()

	return stored, nil
}

// commit takes note that lines are in the file and returns how many of them are
// entries.
func (w *writer) commit(lines []line) (entries int) {
	if len(lines) == 0 {
		return 0
	}

	w.log.state.wrote(lines)
	w.last = lines[len(lines)-1].link
	if w.first == 0 {
		w.first = lines[0].link.Seq
	}
	for i := range lines {
		switch {
		case lines[i].entry != nil:
			entries++
		case lines[i].event == AuditRotated:
			w.rotated = nil

			continue
		default:
			w.loss = loss{}
		}
		w.fresh = false
	}
	w.markDirty(len(lines))

	return entries
}
