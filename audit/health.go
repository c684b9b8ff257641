package audit

import "fmt"

// finish ends the writer: it writes what still waits, syncs and lets go of
// everything.
func (w *writer) finish() error {
	for {
		select {
		case en := <-w.log.queue:
			w.serve(en)

			continue
		default:
		}

		break
	}

	w.takeLost()
	w.waitSync()
	if w.hasNotes() {
		w.store(nil)
	}
	var err error
	if w.file != nil {
		if err = w.syncNow(); err != nil {
			// The file was moved aside; say in the new one what may be lost.
			w.store(nil)
			if w.file != nil {
				_ = w.syncNow() // the first failure is the one to tell
			}
		}
	}
	if !w.loss.empty() && err == nil {
		err = fmt.Errorf("%w: closing audit log: %s", ErrStorage, w.loss.sentence())
	}
	w.closeFile()
	w.syncer.due.Stop()
	w.retry.Stop()
	if lerr := w.lock.Close(); lerr != nil && err == nil {
		err = fmt.Errorf("unlocking audit log: %w", lerr)
	}

	return err
}

// release lets go of the file and the lock of a log that could not be opened.
func (w *writer) release() error {
	w.closeFile()

	return w.lock.Close()
}

// setFailed publishes a failure and arms the next attempt. The operator is told
// once, not for every line.
func (w *writer) setFailed(err error) {
	if w.log.state.healthy.Load() {
		w.logger.Error("audit log can't be written", "error", err)
	}
	w.log.state.fail(err)
	if !w.retryArmed {
		w.retryArmed = true
		w.retry.Reset(w.retryDelay)
		w.retryDelay = min(2*w.retryDelay, retryMax)
	}
}

// setHealth publishes that everything is well again, if it is.
func (w *writer) setHealth() {
	if w.writeFailing || w.syncer.failing || w.log.state.healthy.Load() {
		return
	}

	w.log.state.healthy.Store(true)
	w.retry.Stop()
	w.retryArmed, w.retryDelay = false, retryMin
	w.logger.Info("audit log is written again")
}

// recoverHealth tries to write and sync without waiting for a line, so that a
// log nobody writes to, as the gate refuses everything, becomes healthy too. If
// it fails, it has armed the timer for the next time.
func (w *writer) recoverHealth() {
	w.retryArmed = false
	w.store(nil)
	if w.syncer.failing {
		w.startSync()
	}
}
