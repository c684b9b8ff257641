package audit

import "fmt"

// fail tells the callers of entries that their lines are not stored, and sees to
// a later attempt.
func (w *writer) fail(entries []*entry, err error) {
	w.writeFailing = true
	if len(entries) > 0 {
		w.loss.begin(causeOf(err), w.now())
		for _, en := range entries {
			w.loss.drop(en.event, 1)
		}
		w.log.state.drop(len(entries))
	}
	w.setFailed(err)

	answer(entries, fmt.Errorf("%w: %w", ErrStorage, err))
}

// causeOf returns the cause that a gap record gives for err.
func causeOf(err error) string {
	if diskFull(err) {
		return CauseDiskFull
	}

	return CauseIOError
}

// repair restores the file after a write of which only n bytes arrived, so that
// it ends with a whole line, and commits the lines that are whole. It returns
// how many of them are entries. It leaves the file closed: the next attempt
// opens it anew and sees for itself how it ends.
func (w *writer) repair(n int, cause string) (stored int) {
	kept, keptEnd := 0, 0
	if w.unended {
		keptEnd = min(n, len("\n")) // ends the line that was there before
	}
	for kept < len(w.lines) && w.lines[kept].end <= n {
		keptEnd = w.lines[kept].end
		kept++
	}

	if torn := int64(n - keptEnd); torn > 0 && !w.cutBack(torn) {
		if kept < len(w.lines) && w.lines[kept].end == n+len("\n") {
			// All of it arrived but the newline, which the next write begins
			// with. As the line can't be taken back, it counts as written.
			kept++
		} else {
			w.loss.begin(cause, w.now())
			w.loss.torn += torn
		}
	}

	stored = w.commit(w.lines[:kept])
	w.closeFile()

	return stored
}

// cutBack removes the last n bytes of the file and reports whether it could. The
// size is asked for, and not taken from memory, so as never to cut whole lines.
func (w *writer) cutBack(n int64) bool {
	info, err := w.file.Stat()
	if err == nil {
		err = w.file.Truncate(info.Size() - n)
	}
	if err != nil {
		w.logger.Warn("unfinished audit line can't be removed, it will be ended", "error", err)
	}

	return err == nil
}
