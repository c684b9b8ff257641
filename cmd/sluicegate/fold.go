package main

import (
	"fmt"
	"time"

	"sluicegate/audit"
)

// foldQuiet is how long a run of identical refusals must be quiet to be over.
const foldQuiet = 2 * time.Second

// foldKey is what identical refusals have in common.
type foldKey struct {
	profile, reason, dest, decision string
	port                            uint16
}

// keyOf returns the key of a refusal; ok is false for other records, which are
// never folded.
func keyOf(e *audit.Event) (k foldKey, ok bool) {
	if e.Event != audit.EgressDenied && e.Event != audit.EgressObserved {
		return k, false
	}
	return foldKey{e.Profile, what(e), destination(e), e.Decision, e.Port}, true
}

// folder shows refusals that follow each other and are identical once, with their
// number. The zero folder, but for its columns, is ready to use.
type folder struct {
	columns *columns
	// live shows the first of a run at once, and the number of others at its end.
	live bool

	n    int // of the run; 0 if there is none
	key  foldKey
	held audit.Event // the first of the run
	last time.Time   // of the last one, by its record
	seen time.Time   // when that was read
}

// add returns what is to be shown when e is read at now.
func (f *folder) add(e *audit.Event, now time.Time) string {
	key, ok := keyOf(e)
	if ok && f.n > 0 && key == f.key {
		f.n++
		f.last, f.seen = e.Time, now
		return ""
	}

	out := f.flush()
	if !ok {
		return out + f.columns.line(e, "")
	}
	f.n, f.key, f.held, f.last, f.seen = 1, key, *e, e.Time, now
	if f.live {
		out += f.columns.line(e, "")
	}
	return out
}

// idle returns what is to be shown at now when nothing is read.
func (f *folder) idle(now time.Time) string {
	if !f.live || now.Sub(f.seen) < foldQuiet {
		return ""
	}
	return f.flush()
}

// flush ends the run and returns what is still to be shown of it.
func (f *folder) flush() string {
	n := f.n
	f.n = 0
	switch {
	case n == 0 || n == 1 && f.live:
		return ""
	case f.live:
		return f.columns.note(f.last, fmt.Sprintf("%d more like the line above", n-1))
	case n == 1:
		return f.columns.line(&f.held, "")
	default:
		return f.columns.line(&f.held,
			fmt.Sprintf("(%d times, last at %s)", n, f.last.Local().Format(time.TimeOnly)))
	}
}
