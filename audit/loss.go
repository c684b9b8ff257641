package audit

import (
	"fmt"
	"strconv"
	"time"
)

// loss adds up what an audit.gap record has to say until it is written.
type loss struct {
	dropped    map[Name]int
	total      int
	unsynced   int
	unreadable int
	torn       int64
	from       time.Time
	cause      string
}

// empty reports whether there is nothing to tell.
func (l *loss) empty() bool {
	return l.total == 0 && l.unsynced == 0 && l.unreadable == 0 && l.torn == 0
}

// gravity orders causes. A gap record has room for one, and the graver one says
// more: a full disk is mended by making room, an error of the disk is not.
var gravity = map[string]int{CauseKilled: 1, CauseDiskFull: 2, CauseIOError: 3}

// begin notes the cause and the time of a loss. The first time stays, and of
// several causes the gravest.
func (l *loss) begin(cause string, at time.Time) {
	if l.from.IsZero() {
		l.from = at
	}
	if gravity[cause] > gravity[l.cause] {
		l.cause = cause
	}
}

// drop counts lines that are not in the file.
func (l *loss) drop(event Name, n int) {
	if l.dropped == nil {
		l.dropped = map[Name]int{}
	}
	l.dropped[event] += n
	l.total += n
}

// event returns the record of the loss.
func (l *loss) event(now time.Time) Event {
	gap := &Gap{
		Unsynced:   l.unsynced,
		Unreadable: l.unreadable,
		TornBytes:  l.torn,
		From:       l.from,
		To:         now,
		Cause:      l.cause,
	}
	if len(l.dropped) > 0 {
		gap.Dropped = make(map[string]int, len(l.dropped))
		for name, n := range l.dropped {
			gap.Dropped[string(name)] = n
		}
	}

	return Event{Event: AuditGap, Level: LevelError, Msg: l.sentence(), Gap: gap}
}

// sentence says for people what was lost.
func (l *loss) sentence() string {
	msg := "The audit log is incomplete:"
	if l.total > 0 {
		msg += " " + count(l.total, "record") + " could not be written;"
	}
	if l.unsynced > 0 {
		msg += " " + count(l.unsynced, "record") + " may not have reached the disk;"
	}
	if l.torn > 0 {
		msg += fmt.Sprintf(" an unfinished line of %d bytes precedes this one;", l.torn)
	}
	if l.unreadable > 0 {
		msg += " " + count(l.unreadable, "line") + " before this one can't be read as records;"
	}

	why := map[string]string{
		CauseDiskFull: "the disk is full",
		CauseKilled:   "the program or the machine stopped while writing",
		CauseIOError:  "the file could not be written or was changed by something else",
	}

	return msg + " cause: " + why[l.cause] + "."
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}

	return strconv.Itoa(n) + " " + noun
}
