package audit

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		runChild(path)

		return
	}
	goleak.VerifyTestMain(m)
}

// logPath returns the path of a log that doesn't exist yet.
func logPath(t *testing.T) string {
	t.Helper()

	return filepath.Join(t.TempDir(), "audit.jsonl")
}

// openLog opens a log and closes it when the test ends, if the test didn't.
func openLog(t *testing.T, o Options) *Log {
	t.Helper()

	l, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(context.Background()) })

	return l
}

// closeLog closes a log that must be sound.
func closeLog(t *testing.T, l *Log) {
	t.Helper()

	require.NoError(t, l.Close(t.Context()))
}

// denied returns a usual event.
func denied(dest string) Event {
	return Event{
		Event: EgressDenied, Level: LevelWarn, Msg: "Denied " + dest + ".",
		Decision: DecisionDeny, Reason: "not_listed", Product: "claude-code",
		Profile: "claude-code/commands", Proto: "connect", Dest: dest, Port: 443, Mode: "enforce",
	}
}

func record(t *testing.T, l *Log, events ...Event) {
	t.Helper()

	for _, e := range events {
		require.NoError(t, l.Record(t.Context(), e))
	}
}

// readLines returns the whole lines of one file.
func readLines(t *testing.T, path string) [][]byte {
	t.Helper()

	b, err := os.ReadFile(path)
	require.NoError(t, err)
	var lines [][]byte
	_, err = Scan(bytes.NewReader(b), func(line []byte) error {
		lines = append(lines, bytes.Clone(line))

		return nil
	})
	require.NoError(t, err)

	return lines
}

// allLines returns the whole lines of a log with its rotated files.
func allLines(t *testing.T, path string) [][]byte {
	t.Helper()

	files, err := Files(path)
	require.NoError(t, err)
	var lines [][]byte
	for _, file := range files {
		lines = append(lines, readLines(t, file)...)
	}

	return lines
}

// verify checks the chain over all files of a log, with no more than bad lines
// that are no records, and returns the events.
func verify(t *testing.T, path string, bad int) []Event {
	t.Helper()

	var (
		events []Event
		prev   Link
	)
	for i, line := range allLines(t, path) {
		link, err := CheckLine(line, prev)
		if errors.Is(err, ErrNotRecord) && bad > 0 {
			bad--

			continue
		}
		require.NoError(t, err, "line %d: %s", i+1, line)
		assertASCII(t, line)
		e, err := Parse(line)
		require.NoError(t, err)
		require.Equal(t, link.Seq, e.Seq)
		events = append(events, e)
		prev = link
	}
	assert.Zero(t, bad, "fewer bad lines than expected")

	return events
}

func assertASCII(t require.TestingT, line []byte) {
	for i, c := range line {
		if c < 0x20 || c > 0x7e {
			require.Failf(t, "not printable ASCII", "byte %d is %#x in %q", i, c, line)
		}
	}
}

// names returns the names of events.
func names(events []Event) (names []Name) {
	for _, e := range events {
		names = append(names, e.Event)
	}

	return names
}

// faultyStorage is the real file system with failures in front of it. A nil
// function lets everything through.
type faultyStorage struct {
	osStorage

	mu sync.Mutex
	// onWrite returns how much of b gets through and the error.
	onWrite    func(b []byte) (int, error)
	onSync     func() error
	onTruncate func() error
	onRename   func() error
	onOpen     func() error

	writes, syncs, opens int
}

// set changes the faults.
func (s *faultyStorage) set(change func(s *faultyStorage)) {
	s.mu.Lock()
	defer s.mu.Unlock()

	change(s)
}

// count returns how many writes, syncs and opens there were.
func (s *faultyStorage) count() (writes, syncs, opens int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.writes, s.syncs, s.opens
}

func call(f func() error) error {
	if f == nil {
		return nil
	}

	return f()
}

func (s *faultyStorage) open(path string, mode fs.FileMode) (logFile, error) {
	s.mu.Lock()
	s.opens++
	onOpen := s.onOpen
	s.mu.Unlock()
	if err := call(onOpen); err != nil {
		return nil, err
	}

	f, err := s.osStorage.open(path, mode)
	if err != nil {
		return nil, err
	}

	return &faultyFile{logFile: f, s: s}, nil
}

func (s *faultyStorage) rename(from, to string) error {
	s.mu.Lock()
	onRename := s.onRename
	s.mu.Unlock()
	if err := call(onRename); err != nil {
		return err
	}

	return s.osStorage.rename(from, to)
}

type faultyFile struct {
	logFile
	s *faultyStorage
}

func (f *faultyFile) Write(b []byte) (int, error) {
	f.s.mu.Lock()
	f.s.writes++
	onWrite := f.s.onWrite
	f.s.mu.Unlock()
	if onWrite == nil {
		return f.logFile.Write(b)
	}

	n, fault := onWrite(b)
	n, err := f.logFile.Write(b[:n])

	return n, errors.Join(fault, err)
}

func (f *faultyFile) Sync() error {
	f.s.mu.Lock()
	f.s.syncs++
	onSync := f.s.onSync
	f.s.mu.Unlock()
	if err := call(onSync); err != nil {
		return err
	}

	return f.logFile.Sync()
}

func (f *faultyFile) Truncate(size int64) error {
	f.s.mu.Lock()
	onTruncate := f.s.onTruncate
	f.s.mu.Unlock()
	if err := call(onTruncate); err != nil {
		return err
	}

	return f.logFile.Truncate(size)
}
