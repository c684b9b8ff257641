package audit

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// following follows a log until the test, or the bubble, ends. look waits until
// Follow has looked for more.
func following(t *testing.T, path string, o FollowOptions) (r *read, look func()) {
	t.Helper()

	r = &read{}
	o.Wait, o.Damaged = true, r.damage
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Follow(ctx, path, o, r.line) }()
	t.Cleanup(func() {
		cancel()
		assert.ErrorIs(t, <-done, context.Canceled)
	})
	synctest.Wait()

	return r, func() {
		<-time.After(pollEvery)
		synctest.Wait()
	}
}

func TestFollowNewLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "later", "audit.jsonl")
		r, look := following(t, path, FollowOptions{Last: 20})
		look()
		assert.Empty(t, r.take(), "waits for the folder and the file")

		l := openLog(t, Options{File: path, MaxSize: 1, Sync: time.Hour})
		record(t, l, denied("a.example.com"), denied("b.example.com"), denied("c.example.com"))
		look()
		assert.Equal(t, span(1, 5), r.take(), "also when it was rotated at once")
		record(t, l, denied("d.example.com"))
		look()
		assert.Equal(t, span(6, 7), r.take())
		look()
		assert.Empty(t, r.take())
		closeLog(t, l)
	})
}

func TestFollowLiveLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		l := openLog(t, Options{File: path, Sync: time.Hour})
		record(t, l, denied("a.example.com"), denied("b.example.com"))
		r, look := following(t, path, FollowOptions{Last: 1})
		assert.Equal(t, span(2, 2), r.take())
		record(t, l, denied("c.example.com"))
		assert.Empty(t, r.take())
		look()
		assert.Equal(t, span(3, 3), r.take())
		closeLog(t, l)

		// A restart behind an unfinished line, which is not shown before it ends.
		appendFile(t, path, `{"time":`)
		look()
		look()
		assert.Empty(t, r.damaged)
		l = openLog(t, Options{File: path, Sync: time.Hour})
		record(t, l, denied("d.example.com"))
		look()
		assert.Equal(t, span(4, 5), r.take())
		assert.Equal(t, []Damage{{File: "audit.jsonl", Line: 4, Err: ErrNotRecord}}, r.damaged)
		closeLog(t, l)
	})
}

// An unfinished line grows piece by piece, is taken back, and another one comes.
func TestFollowUnfinishedLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		lines := chainOf(4)
		require.NoError(t, os.WriteFile(path, lines[0], 0o600))
		r, look := following(t, path, FollowOptions{Last: 20})
		require.Equal(t, span(1, 1), r.take())

		for _, part := range bytes.SplitAfter(lines[1], []byte(",")) {
			assert.Empty(t, r.take())
			appendFile(t, path, string(part))
			look()
		}
		assert.Equal(t, span(2, 2), r.take())

		size := fileSize(t, path)
		appendFile(t, path, strings.Repeat("x", 300))
		look()
		require.NoError(t, os.Truncate(path, size+100))
		look()
		require.NoError(t, os.Truncate(path, size))
		appendFile(t, path, string(lines[2]))
		look()
		assert.Equal(t, span(3, 3), r.take())
		assert.Empty(t, r.damaged)

		// One that is longer than any record is not kept, and looked through once.
		for range 5 {
			appendFile(t, path, strings.Repeat("x", maxLine))
			look()
		}
		appendFile(t, path, "\n"+string(lines[3]))
		look()
		assert.Equal(t, span(4, 4), r.take())
		assert.Equal(t, []Damage{{File: "audit.jsonl", Line: 4, Err: ErrNotRecord}}, r.damaged)
	})
}

// What stands at the end of such a line is none by itself, whatever it looks like.
func TestFollowEndOfLongLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		lines := chainOf(3)
		require.NoError(t, os.WriteFile(path, lines[0], 0o600))
		r, look := following(t, path, FollowOptions{Last: 20})
		require.Equal(t, span(1, 1), r.take())

		appendFile(t, path, strings.Repeat("x", 2*maxLine))
		look()
		appendFile(t, path, string(lines[1]))
		look()
		assert.Empty(t, r.take())
		assert.Equal(t, []Damage{{File: "audit.jsonl", Line: 2, Err: ErrNotRecord}}, r.damaged)

		// Some of it is taken back, and then it is a short one.
		size := fileSize(t, path)
		appendFile(t, path, strings.Repeat("x", 2*maxLine))
		look()
		require.NoError(t, os.Truncate(path, size))
		look()
		appendFile(t, path, string(lines[2]))
		look()
		assert.Equal(t, span(3, 3), r.take())
		assert.Len(t, r.damaged, 1)
	})
}

func TestFollowCutFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		lines := chainOf(6)
		require.NoError(t, os.WriteFile(path, bytes.Join(lines[:3], nil), 0o600))
		r, look := following(t, path, FollowOptions{Last: 20})
		require.Equal(t, span(1, 3), r.take())

		require.NoError(t, os.Truncate(path, 0))
		look()
		assert.Empty(t, r.take())
		appendFile(t, path, string(lines[3]))
		look()
		assert.Equal(t, span(4, 4), r.take())

		// Cut and longer again before the next look.
		require.NoError(t, os.WriteFile(path, append([]byte(" "), bytes.Join(lines, nil)...), 0o600))
		look()
		assert.Equal(t, span(2, 6), r.take())
		assert.Equal(t, []Damage{{File: "audit.jsonl", Line: 1, Err: ErrNotRecord}}, r.damaged)
	})
}

// Another program moves the live file away. What the log writes into it until it
// notices is not lost.
func TestFollowMovedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		l := openLog(t, Options{File: path, Sync: time.Hour})
		time.Sleep(2 * checkEvery)
		record(t, l, denied("a.example.com")) // it looks at the path now
		r, look := following(t, path, FollowOptions{Last: 20})
		require.Equal(t, span(1, 1), r.take())

		require.NoError(t, os.Rename(path, path+".1"))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		look()
		record(t, l, denied("b.example.com"))
		look()
		assert.Equal(t, span(2, 2), r.take(), "from the file that was moved")
		time.Sleep(2 * checkEvery)
		record(t, l, denied("c.example.com"))
		time.Sleep(2 * checkEvery)
		look()
		assert.Equal(t, span(3, 4), r.take(), "the note and the record")
		closeLog(t, l)
	})
}
