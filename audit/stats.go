package audit

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Stats is what the log did since it was opened. The maps belong to the caller.
type Stats struct {
	// Boot is the id of this run, as in every line.
	Boot string
	// Events and Decisions count written lines by event and by decision, lines
	// without a decision not at all.
	Events    map[Name]uint64
	Decisions map[string]uint64
	// LastSeq and LastHash are of the last line in the file, also one of an
	// earlier run; 0 and 64 zeros if there is none. SyncedSeq is the last line
	// known to be on the disk, 0 before the first fsync: what is told to others
	// as evidence must not be newer.
	LastSeq   uint64
	LastHash  string
	SyncedSeq uint64
	// Healthy is false from a failed write or fsync until one succeeds.
	Healthy bool
	// LastError is the text of the last failure, also of one that is over;
	// empty if there was none.
	LastError string
	// Dropped counts lines whose callers got ErrStorage and that are not in
	// the file.
	Dropped uint64
	// Queued is how many lines wait for the writer now.
	Queued int
}

// Stats returns a snapshot of the log's counters.
func (l *Log) Stats() Stats {
	s := &l.state
	s.mu.Lock()
	defer s.mu.Unlock()

	return Stats{
		Boot:      l.boot,
		Events:    maps.Clone(s.events),
		Decisions: maps.Clone(s.decisions),
		LastSeq:   s.last.Seq,
		LastHash:  s.last.HashString(),
		SyncedSeq: s.synced,
		Healthy:   s.healthy.Load(),
		LastError: s.lastError,
		Dropped:   s.dropped,
		Queued:    len(l.queue),
	}
}

// Healthy reports, without taking a lock, whether the log can be written as far
// as is known. It is false from a failed write or fsync until one succeeds.
func (l *Log) Healthy() bool { return l.state.healthy.Load() }

// state is what the writer publishes and callers read.
type state struct {
	healthy atomic.Bool

	mu        sync.Mutex
	events    map[Name]uint64
	decisions map[string]uint64
	last      Link
	synced    uint64
	lastError string
	dropped   uint64
	// lost are lines that found no room in the queue before their caller gave
	// up; the writer takes them over into the next gap record.
	lost map[Name]int
}

func (s *state) init() {
	s.events = map[Name]uint64{}
	s.decisions = map[string]uint64{}
	s.lost = map[Name]int{}
	s.healthy.Store(true)
}

// lose counts a line that never reached the writer.
func (s *state) lose(event Name) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.lost[event]++
	s.dropped++
}

// drop counts lines that the writer could not write.
func (s *state) drop(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.dropped += uint64(n)
}

// wrote counts written lines. On one line, its entry is nil for the log's own.
func (s *state) wrote(lines []line) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for i := range lines {
		s.events[lines[i].event]++
		if en := lines[i].entry; en != nil && en.decision != "" {
			s.decisions[en.decision]++
		}
		s.last = lines[i].link
	}
}

// fail publishes a failure.
func (s *state) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.lastError = err.Error()
	s.healthy.Store(false)
}

// sync publishes the last line that is on the disk.
func (s *state) sync(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.synced = max(s.synced, seq)
}

// start publishes where the chain goes on. Whether that line of an earlier run
// is on the disk is not known before the first fsync.
func (s *state) start(last Link) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.last = last
}

// takeLost empties and returns the lines that found no room in the queue.
func (s *state) takeLost() map[Name]int {
	s.mu.Lock()
	defer s.mu.Unlock()

	if len(s.lost) == 0 {
		return nil
	}
	lost := s.lost
	s.lost = map[Name]int{}

	return lost
}
