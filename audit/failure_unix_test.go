//go:build unix

package audit

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	errNoSpace = &os.PathError{Op: "write", Path: "audit.jsonl", Err: syscall.ENOSPC}
	errQuota   = &os.PathError{Op: "write", Path: "audit.jsonl", Err: syscall.EDQUOT}
)

// Whoever moves, deletes, replaces or empties the live file is noticed within a
// second, and the chain goes on where it was.
func TestFileTakenAway(t *testing.T) {
	for _, tc := range []struct {
		name string
		take func(t *testing.T, path string)
		// left is how many of the first three lines the log still has.
		left int
	}{
		{"deleted", func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
		}, 0},
		{"folder deleted and made again", func(t *testing.T, path string) {
			require.NoError(t, os.RemoveAll(filepath.Dir(path)))
			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		}, 0},
		{"moved", func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".1"))
		}, 0},
		{"moved and made again", func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".1"))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		}, 0},
		{"replaced by a copy that lacks the last line", func(t *testing.T, path string) {
			lines := readLines(t, path)
			require.NoError(t, os.Remove(path))
			for _, line := range lines[:2] {
				appendFile(t, path, string(line)+"\n")
			}
		}, 2},
		{"replaced by a copy that is torn", func(t *testing.T, path string) {
			lines := readLines(t, path)
			require.NoError(t, os.Remove(path))
			appendFile(t, path, string(lines[0])+"\n"+string(lines[1]))
		}, 2},
		{"emptied", func(t *testing.T, path string) {
			require.NoError(t, os.Truncate(path, 0))
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := logPath(t)
				l := openLog(t, Options{File: path, Sync: time.Hour})
				record(t, l, denied("a.example.com"), denied("b.example.com"), denied("c.example.com"))
				last := l.Stats()

				tc.take(t, path)
				time.Sleep(checkEvery)
				record(t, l, denied("d.example.com"))
				closeLog(t, l)

				lines := readLines(t, path)
				require.Len(t, lines, tc.left+2)
				e, err := Parse(lines[tc.left])
				require.NoError(t, err)
				require.Equal(t, AuditRotated, e.Event)
				assert.Equal(t, LevelWarn, e.Level)
				assert.Equal(t, uint64(4), e.Seq)
				assert.Equal(t, &Rotation{FirstSeq: 1, LastSeq: 3, LastHash: last.LastHash}, e.Rotated)
				assert.Equal(t, last.LastHash, e.Prev)
				e, err = Parse(lines[tc.left+1])
				require.NoError(t, err)
				assert.Equal(t, "d.example.com", e.Dest)
			})
		})
	}
}

// Before a second is over the path isn't looked at; that would cost each line.
func TestFileTakenAwayIsLookedForOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		l := openLog(t, Options{File: path})
		record(t, l, denied("a.example.com"))
		require.NoError(t, os.Remove(path))
		time.Sleep(checkEvery - time.Millisecond)
		record(t, l, denied("b.example.com"))
		assert.NoFileExists(t, path)
		time.Sleep(time.Millisecond)
		record(t, l, denied("c.example.com"))
		assert.Equal(t, []Name{AuditRotated, EgressDenied}, names(parseAll(t, path)))
		closeLog(t, l)
	})
}

func parseAll(t *testing.T, path string) (events []Event) {
	t.Helper()

	for _, line := range readLines(t, path) {
		e, err := Parse(line)
		require.NoError(t, err)
		events = append(events, e)
	}

	return events
}

// A link in place of the file is refused until it is gone.
func TestFileReplacedByLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		target := filepath.Join(t.TempDir(), "target")
		require.NoError(t, os.WriteFile(target, nil, 0o600))
		l := openLog(t, Options{File: path})
		record(t, l, denied("a.example.com"))

		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Symlink(target, path))
		time.Sleep(checkEvery)
		err := l.Record(t.Context(), denied("b.example.com"))
		require.ErrorIs(t, err, ErrStorage)
		require.ErrorContains(t, err, "is a symbolic link")
		assert.Zero(t, fileSize(t, target))

		require.NoError(t, os.Remove(path))
		record(t, l, denied("c.example.com"))
		closeLog(t, l)
		events := parseAll(t, path)
		require.Equal(t, []Name{AuditRotated, AuditGap, EgressDenied}, names(events))
		assert.Equal(t, map[string]int{"egress.denied": 1}, events[1].Gap.Dropped)
	})
}

// What somebody else appends is bad, but must not spoil the next record.
func TestForeignBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		l := openLog(t, Options{File: path})
		record(t, l, denied("a.example.com"))
		appendFile(t, path, "foreign")
		time.Sleep(checkEvery)
		record(t, l, denied("b.example.com"))
		closeLog(t, l)
		assert.Len(t, verify(t, path, 1), 2)
	})
}

// While the file is closed after a failed write, its inode can be emptied too.
func TestFileEmptiedWhileItIsClosed(t *testing.T) {
	path := logPath(t)
	fs := &faultyStorage{}
	l := openLog(t, Options{File: path, storage: fs})
	record(t, l, denied("a.example.com"), denied("b.example.com"))
	fs.failWrites(0, errNoSpace)
	require.ErrorIs(t, l.Record(t.Context(), denied("lost.example.com")), ErrStorage)
	require.NoError(t, os.Truncate(path, 0))

	fs.heal()
	record(t, l, denied("c.example.com"))
	closeLog(t, l)
	events := parseAll(t, path)
	require.Equal(t, []Name{AuditRotated, AuditGap, EgressDenied}, names(events))
	assert.Equal(t, uint64(2), events[0].Rotated.LastSeq)
}
