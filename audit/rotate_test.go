package audit

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRotation(t *testing.T) {
	const maxSize = 4 << 10

	path := logPath(t)
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.FixedZone("", 3600))
	l := openLog(t, Options{File: path, MaxSize: maxSize, Now: func() time.Time { return now }})
	for range 20 {
		record(t, l, denied("example.com"))
	}
	closeLog(t, l)
	l = openLog(t, Options{File: path, MaxSize: maxSize, Now: func() time.Time { return now }})
	for range 20 {
		record(t, l, denied("example.com"))
	}
	closeLog(t, l)

	verify(t, path, 0) // over all files and the restart
	files, err := Files(path)
	require.NoError(t, err)
	require.Greater(t, len(files), 3)
	assert.Equal(t, path, files[len(files)-1])
	assert.Equal(t, "audit-20261130T090000Z-000000000001.jsonl", filepath.Base(files[0]))

	for i, file := range files {
		assert.LessOrEqual(t, fileSize(t, file), int64(maxSize))
		if i == 0 {
			continue
		}
		before, lines := readLines(t, files[i-1]), readLines(t, file)
		first, err := Parse(lines[0])
		require.NoError(t, err)
		require.Equal(t, AuditRotated, first.Event)
		firstBefore, ok := splitLine(before[0])
		require.True(t, ok)
		lastBefore, ok := splitLine(before[len(before)-1])
		require.True(t, ok)
		assert.Equal(t, &Rotation{
			File:     filepath.Base(files[i-1]),
			FirstSeq: firstBefore.link.Seq,
			LastSeq:  lastBefore.link.Seq,
			LastHash: lastBefore.link.HashString(),
		}, first.Rotated)
		assert.Equal(t, lastBefore.link.Seq+1, first.Seq)
	}
}

// A size that no line fits into gives each line a file of its own, and no loop.
func TestRotationOfEveryLine(t *testing.T) {
	path := logPath(t)
	l := openLog(t, Options{File: path, MaxSize: 1})
	for range 5 {
		record(t, l, denied("example.com"))
	}
	closeLog(t, l)

	files, err := Files(path)
	require.NoError(t, err)
	require.Len(t, files, 5)
	events := verify(t, path, 0)
	assert.Len(t, events, 5+4)
}

func TestRotationOverwritesNothing(t *testing.T) {
	path := logPath(t)
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	taken := filepath.Join(filepath.Dir(path), "audit-20261130T100000Z-000000000001.jsonl")
	require.NoError(t, os.WriteFile(taken, []byte("precious\n"), 0o600))

	l := openLog(t, Options{File: path, MaxSize: 1, Now: func() time.Time { return now }})
	record(t, l, denied("example.com"), denied("example.com"))
	closeLog(t, l)
	b, err := os.ReadFile(taken)
	require.NoError(t, err)
	assert.Equal(t, "precious\n", string(b))
	assert.FileExists(t, filepath.Join(filepath.Dir(path), "audit-20261130T100001Z-000000000001.jsonl"))
}

func TestRotationThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		renames := 0
		fs := &faultyStorage{onRename: func() error { renames++; return errDisk }}
		l := openLog(t, Options{File: path, MaxSize: 2 << 10, Sync: time.Hour, storage: fs})
		for range 10 {
			record(t, l, denied("example.com"))
		}
		assert.Equal(t, 1, renames, "not tried again for every line")
		assert.Greater(t, fileSize(t, path), int64(2<<10), "it grows on")
		assert.True(t, l.Healthy())
		assert.Len(t, verify(t, path, 0), 10, "no line is lost")

		time.Sleep(rotateRetry)
		record(t, l, denied("example.com"))
		assert.Equal(t, 2, renames)

		fs.heal()
		time.Sleep(rotateRetry)
		record(t, l, denied("example.com"))
		closeLog(t, l)
		files, err := Files(path)
		require.NoError(t, err)
		require.Len(t, files, 2)
		events := verify(t, path, 0)
		assert.Len(t, events, 13)
		assert.Equal(t, AuditRotated, events[11].Event)
	})
}

// The old file is gone and the new one can't be made: lines fail, and once it
// can, its first line still is the one that joins it to the old file.
func TestRotationWithoutNewFile(t *testing.T) {
	path := logPath(t)
	fs := &faultyStorage{}
	l := openLog(t, Options{File: path, MaxSize: 1, storage: fs})
	record(t, l, denied("a.example.com"))
	fs.set(func(s *faultyStorage) { s.onOpen = func() error { return errNoSpace } })
	require.ErrorIs(t, l.Record(t.Context(), denied("b.example.com")), ErrStorage)
	assert.NoFileExists(t, path)

	fs.heal()
	record(t, l, denied("c.example.com"))
	closeLog(t, l)
	events := verify(t, path, 0)
	require.Equal(t, []Name{EgressDenied, AuditRotated, AuditGap, EgressDenied}, names(events))
	assert.Equal(t, uint64(1), events[1].Rotated.LastSeq)
	assert.Equal(t, CauseDiskFull, events[2].Gap.Cause)
}

func TestRotationWhenSyncFails(t *testing.T) {
	path := logPath(t)
	fs := &faultyStorage{}
	l := openLog(t, Options{File: path, MaxSize: 1, Sync: time.Hour, storage: fs})
	record(t, l, denied("a.example.com"))
	fs.set(func(s *faultyStorage) { s.onSync = func() error { return errDisk } })
	record(t, l, denied("b.example.com"))
	fs.heal()
	closeLog(t, l)

	events := verify(t, path, 0)
	require.Equal(t, []Name{EgressDenied, AuditRotated, AuditGap, EgressDenied}, names(events))
	assert.Equal(t, 1, events[2].Gap.Unsynced)
}

// One batch that is larger than the rest of the file is split over two.
func TestRotationWithinABatch(t *testing.T) {
	path := logPath(t)
	g := newGate()
	l := openLog(t, Options{File: path, MaxSize: 4 << 10, storage: &faultyStorage{onWrite: g.write}})
	result := make(chan error)
	one := func() { result <- l.Record(t.Context(), denied("example.com")) }
	go one()
	<-g.entered
	const callers = 30
	for range callers {
		go one()
	}
	require.Eventually(t, func() bool { return l.Stats().Queued == callers }, 10*time.Second, time.Millisecond)
	close(g.open)
	for range callers + 1 {
		require.NoError(t, <-result)
	}
	closeLog(t, l)

	files, err := Files(path)
	require.NoError(t, err)
	assert.Greater(t, len(files), 4)
	for _, file := range files {
		assert.LessOrEqual(t, fileSize(t, file), int64(4<<10))
	}
	assert.Len(t, verify(t, path, 0), callers+1+len(files)-1)
}
