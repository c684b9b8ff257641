package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// recover opens the file and finds where the chain goes on. What it finds
// damaged becomes a note, which it writes.
func (w *writer) recover(ctx context.Context) error {
	if err := w.ready(); err != nil {
		return err
	}
	w.mode = w.info.Mode().Perm()

	t, err := readTail(w.file, w.size)
	if err != nil {
		return err
	}
	w.addDamage(ctx, w.path, &t)
	damaged := t.damaged()

	if !t.found {
		var older bool
		t, older = w.recoverOlder(ctx)
		damaged = damaged || older
	}
	w.last = t.link
	if w.size > 0 && w.first == 0 {
		// The first line is unreadable: the best known number for the name.
		w.first = w.last.Seq + 1
	}

	switch {
	case t.found && t.event == ServiceStopped && !damaged:
		w.log.previous = "clean"
	case t.found || damaged:
		w.log.previous = "unclean"
	default:
		w.log.previous = "unknown"
	}
	w.log.state.start(w.last)

	if w.hasNotes() || w.unended {
		w.store(nil) // its failure is published, and tried again
	}

	return nil
}

// recoverOlder looks for the last valid record in the rotated files, the newest
// first. damaged says whether something unreadable stands behind it.
func (w *writer) recoverOlder(ctx context.Context) (t tail, damaged bool) {
	files, err := rotatedFiles(w.path)
	if err != nil {
		w.logger.ErrorContext(ctx, "rotated audit files can't be listed", "error", err)

		return t, false
	}

	for _, r := range slices.Backward(files) {
		name := filepath.Join(filepath.Dir(w.path), r.name)
		t, err = tailOf(name)
		if err != nil {
			w.logger.ErrorContext(ctx, "rotated audit file can't be read", "error", err)

			continue
		}
		w.addDamage(ctx, name, &t)
		damaged = damaged || t.damaged()
		if !t.found {
			continue
		}

		if w.size == 0 {
			w.rotated = &Rotation{
				File:     r.name,
				FirstSeq: r.first,
				LastSeq:  t.link.Seq,
				LastHash: t.link.HashString(),
			}
		}

		return t, damaged
	}

	return tail{}, damaged
}

// tailOf returns the tail of a file by name.
func tailOf(name string) (t tail, err error) {
	f, err := os.Open(name)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	info, err := f.Stat()
	if err != nil {
		return t, fmt.Errorf("reading the end of the log: %w", err)
	}

	return readTail(f, info.Size())
}

// addDamage turns what stands behind the last valid record into a loss, and
// tells the operator.
func (w *writer) addDamage(ctx context.Context, name string, t *tail) {
	if t.torn > 0 {
		w.loss.begin(CauseKilled, t.at)
		w.loss.torn += t.torn
		w.logger.WarnContext(ctx, "audit log ends in an unfinished line: the last run was killed",
			"file", name, "bytes", t.torn)
	}
	if t.bad > 0 {
		w.loss.begin(CauseIOError, t.at)
		w.loss.unreadable += t.bad
		w.logger.ErrorContext(ctx, "audit log has lines behind its last valid record: it was altered",
			"file", name, "lines", t.bad, "last_seq", t.link.Seq)
	}
}
