package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

const (
	// stampLayout is the time in the name of a rotated file, in UTC.
	stampLayout = "20060102T150405Z"
	// rotateRetry is how long a rotation that failed is left alone.
	rotateRetry = time.Minute
	// notesMax is room for the notes that may come before the next line.
	notesMax = 2 << 10
)

// rotationOnHold reports whether a rotation failed and it is too early to try
// again; until then the file grows.
func (w *writer) rotationOnHold() bool {
	return !w.rotateAfter.IsZero() && time.Now().Before(w.rotateAfter)
}

// mustRotate reports whether the next lines belong into a new file.
func (w *writer) mustRotate(entries []*entry) bool {
	if w.fresh || w.rotationOnHold() {
		return false
	}

	w.buf = w.buf[:0]
	need := 0
	if w.hasNotes() {
		need += notesMax
	}
	if len(entries) > 0 {
		need += len(entries[0].enc.buf)
	}

	return need > 0 && !w.fits(need)
}

// rotate ends the file and moves it aside; ready begins the next one. If it can't
// be moved, ready opens it again and it grows on: no line is lost for that.
func (w *writer) rotate() {
	if w.syncNow() != nil {
		// The file has been given up, and moved if that could be done.
		return
	}
	w.closeFile()
	w.moveAside()
}

// moveAside gives the closed file its final name and makes the note of it due.
func (w *writer) moveAside() {
	if w.first == 0 {
		return // nothing in it
	}

	if info, err := w.fs.stat(w.path); err == nil && info.Mode().IsRegular() {
		w.mode = info.Mode().Perm() // somebody may have changed it since
	}
	name, err := w.freeName()
	if err == nil {
		err = w.fs.rename(w.path, name)
	}
	if err != nil {
		w.rotateAfter = time.Now().Add(rotateRetry)
		w.logger.Error("audit log can't be rotated; it goes on growing",
			"error", err, "retry_in", rotateRetry)

		return
	}
	w.syncNames()

	w.rotated = &Rotation{
		File:     filepath.Base(name),
		FirstSeq: w.first,
		LastSeq:  w.last.Seq,
		LastHash: w.last.HashString(),
	}
	w.info, w.first, w.rotateAfter = nil, 0, time.Time{}
}

// freeName returns a name for the file that nothing has yet. Renaming would
// replace it without a word. Two files need the same name only if a chain was
// begun anew within a second; then the later one gets a later time.
func (w *writer) freeName() (string, error) {
	const tries = 100

	stem, ext := splitName(w.path)
	stamp := w.now().UTC()
	for range tries {
		name := filepath.Join(filepath.Dir(w.path),
			fmt.Sprintf("%s-%s-%012d%s", stem, stamp.Format(stampLayout), w.first, ext))
		_, err := w.fs.stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", fmt.Errorf("naming rotated audit log: %w", err)
		}
		stamp = stamp.Add(time.Second)
	}

	return "", fmt.Errorf("naming rotated audit log: no free name after %d tries", tries)
}

// syncNames makes new and changed names in the folder durable.
func (w *writer) syncNames() {
	if err := w.fs.syncDir(filepath.Dir(w.path)); err != nil {
		w.logger.Warn("audit folder can't be synced", "error", err)
	}
}
