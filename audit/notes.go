package audit

// hasNotes reports whether the log has something to say itself.
func (w *writer) hasNotes() bool { return w.rotated != nil || !w.loss.empty() }

// buildNotes appends the notes that are due to the buffer. A rotation comes
// first, as it has to be the first line of its file.
func (w *writer) buildNotes() {
	if w.rotated != nil {
		w.addNote(rotationEvent(w.rotated))
	}
	if !w.loss.empty() {
		w.addNote(w.loss.event(w.now()))
	}
}

func (w *writer) addNote(e Event) {
	w.log.complete(&e)
	w.enc.encode(&e)
	w.add(e.Event, w.enc.buf, nil)
}

// rotationEvent returns the record of a rotation, or of a file that went missing
// if it has no name.
func rotationEvent(r *Rotation) Event {
	e := Event{
		Event:   AuditRotated,
		Level:   LevelInfo,
		Msg:     "The audit log continues from " + r.File + ".",
		Rotated: r,
	}
	if r.File == "" {
		e.Level = LevelWarn
		e.Msg = "The audit log was moved, deleted or cut by another program while it was open; it continues here."
	}

	return e
}

// takeLost takes over the lines that found no room in the queue.
func (w *writer) takeLost() {
	lost := w.log.state.takeLost()
	if len(lost) == 0 {
		return
	}

	w.loss.begin(CauseIOError, w.now())
	for event, n := range lost {
		w.loss.drop(event, n)
	}
}
