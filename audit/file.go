package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// ready sees to it that the file is open.
func (w *writer) ready() error {
	if w.file != nil {
		return nil
	}

	f, err := w.fs.open(w.path, w.mode)
	if err != nil {
		return fmt.Errorf("opening audit log: %w", err)
	}
	if err = w.adopt(f); err != nil {
		return errors.Join(fmt.Errorf("opening audit log: %w", err), f.Close())
	}

	return nil
}

// adopt makes f, just opened, the file that is written.
func (w *writer) adopt(f logFile) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}

	size := info.Size()
	unended, err := isUnended(f, size)
	if err != nil {
		return err
	}
	if size == 0 && w.last.Seq > 0 && info.Mode().Perm() != w.mode {
		// A new file gets the mode of the one before; the umask may have taken
		// something away. That is no reason not to write.
		if err = f.Chmod(w.mode); err != nil {
			w.logger.Warn("audit log keeps its mode", "error", err)
		}
	}

	// While the file was closed after a failure, somebody else may have had it.
	if w.info != nil && (!os.SameFile(w.info, info) || size < w.size) {
		w.noteMoved()
	}
	if size == 0 {
		w.first = 0
		w.syncNames()
	} else if w.first == 0 {
		w.first = firstSeq(f)
	}
	w.file, w.info, w.size = f, info, size
	w.fresh, w.unended = size == 0, unended
	w.checked = time.Now()

	return nil
}

// isUnended reports whether the first size bytes of f end without a newline.
func isUnended(f logFile, size int64) (bool, error) {
	if size == 0 {
		return false, nil
	}

	var end [1]byte
	_, err := f.ReadAt(end[:], size-1)

	return end[0] != '\n', err
}

// lookAfter sees to it that the path names a file of ours when nothing is being
// written: what another program did to it is noticed within checkEvery, and what
// there is to say of it does not wait for the next line.
func (w *writer) lookAfter() {
	// A line that comes right after this look still has its own: it must not go
	// into a file that was taken away in between.
	checked := w.checked
	w.checked = time.Time{}
	w.checkFile()
	w.checked = checked
	if w.file == nil && !w.writeFailing && !w.syncer.failing {
		w.store(nil)
	}
}

// checkFile looks, at most once a second, whether the path still names the open
// file. Otherwise lines would go, without any error, into a file that nobody
// can find, or that somebody replaced by a doctored copy.
//
// What was written to a file that is gone can't be brought back, and how much of
// it survives elsewhere is not known here: the next line is an audit.rotated
// without a file name that says up to which line that was. It is no audit.gap,
// which counts lines that never were in a file.
func (w *writer) checkFile() {
	if w.file == nil || time.Since(w.checked) < checkEvery {
		return
	}
	w.checked = time.Now()

	info, err := w.fs.stat(w.path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		// The folder can't be looked at for now; the open file can be written.
		return
	case err == nil && os.SameFile(w.info, info) && info.Size() >= w.size:
		if info.Size() > w.size {
			w.noteForeign(info.Size())
		}

		return
	}
	// Said now and not when the file is opened again: a new file can get the
	// number of the deleted one, and would pass for it.
	w.noteMoved()

	w.waitSync()
	if w.file == nil {
		return
	}
	// The lines may still be found by whoever moved the file.
	if err = w.file.Sync(); err != nil {
		w.loseDirty(causeOf(err))
	} else {
		w.syncer.dirty = 0
		w.log.state.sync(w.last.Seq)
	}
	w.closeFile()
}

// noteMoved makes a note due that the lines so far are not where they should be.
func (w *writer) noteMoved() {
	w.info = nil
	if w.first == 0 {
		return // nothing in it
	}

	w.logger.Error("audit log was moved, deleted or cut by another program while it was open",
		"file", w.path, "last_seq", w.last.Seq)
	w.rotated = &Rotation{
		FirstSeq: w.first,
		LastSeq:  w.last.Seq,
		LastHash: w.last.HashString(),
	}
	w.first = 0
}

// noteForeign takes note that somebody else wrote to the file, up to size. Their
// lines are for a checker to find; here they only must not run into ours.
func (w *writer) noteForeign(size int64) {
	w.logger.Error("another program writes to the audit log", "file", w.path, "bytes", size-w.size)

	unended, err := isUnended(w.file, size)
	// A newline too many is an empty line, one too few is a lost record.
	w.unended = unended || err != nil
	w.size = size
}

// closeFile closes the file, if it is open. A failure has no consequence, as
// what must be on the disk was synced before.
func (w *writer) closeFile() {
	w.waitSync()
	if w.file == nil {
		return
	}

	if err := w.file.Close(); err != nil {
		w.logger.Warn("closing audit log", "error", err)
	}
	w.file = nil
}
