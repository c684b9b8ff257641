package audit

import (
	"fmt"
	"time"
)

// syncer is the part of the writer's state that is about fsync. An fsync can
// take long, and lines needn't wait for it: it runs in a goroutine of its own,
// one at a time, unless the answer to a caller depends on it.
type syncer struct {
	// due fires when the oldest line that isn't synced is old enough.
	due   *time.Timer
	armed bool
	// done gets the result of the running fsync. It has room for it, so that
	// goroutine never waits.
	done    chan error
	running bool
	// to and covers are what the running fsync makes durable: the last line and
	// the number of lines.
	to     uint64
	covers int

	// dirty counts lines written since the last fsync that began and succeeded;
	// since is when the first of them was.
	dirty int
	since time.Time
	// failing is true from a failed fsync until one succeeds.
	failing bool
}

func newSyncer() syncer {
	return syncer{due: stoppedTimer(), done: make(chan error, 1)}
}

// markDirty counts n lines that need an fsync and sees to it.
func (w *writer) markDirty(n int) {
	s := &w.syncer
	if s.dirty == 0 {
		s.since = w.now()
	}
	s.dirty += n
	w.armSync()
}

// armSync starts the timer if there is something to sync and nothing on its way.
// While fsync fails the attempts of recoverHealth take its place.
func (w *writer) armSync() {
	s := &w.syncer
	if s.dirty > 0 && !s.armed && !s.running && !s.failing && w.sync != SyncAlways {
		s.armed = true
		s.due.Reset(w.sync)
	}
}

// startSync begins an fsync of everything written so far.
func (w *writer) startSync() {
	s := &w.syncer
	s.armed = false
	if w.file == nil || s.running {
		return
	}

	s.running, s.to, s.covers = true, w.last.Seq, s.dirty
	go syncFile(w.file, s.done)
}

// syncFile sends the result of an fsync to done.
func syncFile(f logFile, done chan<- error) {
	done <- f.Sync()
}

// finishSync takes the result of the fsync that startSync began.
func (w *writer) finishSync(err error) {
	s := &w.syncer
	s.running = false
	if err != nil {
		w.syncFailed(fmt.Errorf("syncing audit log: %w", err))

		return
	}

	s.dirty -= s.covers
	s.since = w.now()
	s.failing = false
	w.log.state.sync(s.to)
	w.setHealth()
	w.armSync()
}

// waitSync waits for the fsync that is running, if one is.
func (w *writer) waitSync() {
	if w.syncer.running {
		w.finishSync(<-w.syncer.done)
	}
}

// syncNow makes everything written so far durable before it returns.
func (w *writer) syncNow() error {
	w.waitSync()
	if w.file == nil {
		return ErrStorage // that fsync failed, and the file was given up
	}

	s := &w.syncer
	s.due.Stop()
	s.armed = false
	s.to, s.covers = w.last.Seq, s.dirty
	if err := w.file.Sync(); err != nil {
		err = fmt.Errorf("syncing audit log: %w", err)
		w.syncFailed(err)

		return err
	}
	w.finishSync(nil)

	return nil
}

// syncFailed gives the file up. After a failed fsync Linux marks the pages it
// could not write as clean, and the next fsync succeeds without them: this file
// can't be made durable any more. Lines go on in a new one, behind a record of
// how many may be missing from the disk.
//
// If fsync then fails in the new file too, the disk is bad and another file is
// no help: it stays, and is opened anew for each attempt.
func (w *writer) syncFailed(err error) {
	s := &w.syncer
	w.loseDirty(causeOf(err))
	w.setFailed(err)
	w.closeFile()
	if !s.failing {
		s.failing = true
		w.moveAside()
	}
}

// loseDirty turns the lines that aren't synced into a loss.
func (w *writer) loseDirty(cause string) {
	s := &w.syncer
	if s.dirty == 0 {
		return
	}

	w.loss.begin(cause, s.since)
	w.loss.unsynced += s.dirty
	s.dirty = 0
}
