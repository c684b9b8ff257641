package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// read is what a Follow passed on.
type read struct {
	mu      sync.Mutex
	seqs    []uint64
	lines   []string
	damaged []Damage
}

func (r *read) line(line []byte, e *Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seqs = append(r.seqs, e.Seq)
	r.lines = append(r.lines, string(line))

	return nil
}

func (r *read) damage(d Damage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.damaged = append(r.damaged, d)
}

// take returns the numbers that were read since the last call.
func (r *read) take() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	seqs := r.seqs
	r.seqs = nil

	return seqs
}

// follow reads a log without waiting.
func follow(t *testing.T, path string, o FollowOptions) *read {
	t.Helper()

	r := &read{}
	o.Damaged = r.damage
	require.NoError(t, Follow(t.Context(), path, o, r.line))

	return r
}

// span returns the numbers from first to last.
func span(first, last uint64) (seqs []uint64) {
	for n := first; n <= last; n++ {
		seqs = append(seqs, n)
	}

	return seqs
}

func TestFollowLast(t *testing.T) {
	path := writeFiles(t, sealedLog())
	for _, tc := range []struct {
		last int
		want []uint64
	}{
		{0, nil},
		{1, span(12, 12)},
		{4, span(9, 12)},
		{5, span(8, 12)},
		{8, span(5, 12)},
		{11, span(2, 12)},
		{12, span(1, 12)},
		{1000, span(1, 12)},
		{-1, span(1, 12)},
	} {
		r := follow(t, path, FollowOptions{Last: tc.last})
		assert.Equal(t, tc.want, r.seqs, "last %d", tc.last)
		assert.Empty(t, r.damaged)
	}

	// As they stand in the files.
	var want []string
	for _, line := range allLines(t, path) {
		want = append(want, string(line))
	}
	assert.Equal(t, want, follow(t, path, FollowOptions{Last: -1}).lines)
}

func TestFollowFilter(t *testing.T) {
	path := writeFiles(t, sealedLog())
	for _, tc := range []struct {
		name   string
		filter Filter
		last   int
		want   []uint64
	}{
		{"event", Filter{Event: AuditRotated}, -1, []uint64{5, 9}},
		{"last of an event", Filter{Event: AuditRotated}, 1, []uint64{9}},
		{"more than there are", Filter{Event: AuditRotated}, 9, []uint64{5, 9}},
		{"none", Filter{Event: AuditGap}, 5, nil},
		{"host", Filter{Host: HostFilter{name: "host6.example.com", exact: true}}, 1, []uint64{6}},
		{"since", Filter{Since: time.Date(2026, 10, 30, 10, 0, 2, 0, time.UTC)}, -1, span(7, 12)},
		{"since, last", Filter{Since: time.Date(2026, 10, 30, 10, 0, 2, 0, time.UTC)}, 3, span(10, 12)},
		{"since, fewer", Filter{Since: time.Date(2026, 10, 31, 10, 0, 2, 0, time.UTC)}, 9, span(11, 12)},
		{"since later", Filter{Since: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}, -1, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, follow(t, path, FollowOptions{Filter: tc.filter, Last: tc.last}).seqs)
		})
	}

	// A file that was last written before Since isn't even opened.
	first := filepath.Join(filepath.Dir(path), sealedLog()[0].name)
	old := time.Date(2026, 10, 29, 11, 0, 0, 0, time.UTC)
	require.NoError(t, os.WriteFile(first, []byte("no longer a log\n"), 0o600))
	require.NoError(t, os.Chtimes(first, old, old))
	r := follow(t, path, FollowOptions{Last: -1, Filter: Filter{Since: old.Add(time.Hour)}})
	assert.Equal(t, span(5, 12), r.seqs)
	assert.Empty(t, r.damaged)
}

func TestFollowDamage(t *testing.T) {
	log := sealedLog()
	insert := func(file, at int, line string) {
		lines := log[file].lines
		log[file].lines = append(lines[:at:at], append([][]byte{[]byte(line)}, lines[at:]...)...)
	}
	insert(0, 1, "garbage\n")                                                        // line 2
	insert(0, 3, strings.Repeat("x", 300<<10)+"\n")                                  // line 4
	insert(1, 0, "\n")                                                               // line 1
	insert(1, 2, strings.Replace(string(log[1].lines[2]), "host6", "\u202ehost", 1)) // line 3, not ASCII
	insert(2, 4, strings.Replace(string(log[2].lines[3]), Schema, "sluicegate.audit/2", 1))
	insert(2, 5, "torn")
	path := writeFiles(t, log)

	r := follow(t, path, FollowOptions{Last: -1})
	assert.Equal(t, span(1, 12), r.seqs)
	var got []string
	for _, d := range r.damaged {
		got = append(got, fmt.Sprintf("%s:%d", d.File, d.Line))
	}
	assert.Equal(t, []string{
		log[0].name + ":2", log[0].name + ":4", log[1].name + ":1", log[1].name + ":3", "audit.jsonl:5",
	}, got)
	require.ErrorIs(t, r.damaged[0].Err, ErrNotRecord)
	require.ErrorIs(t, r.damaged[4].Err, ErrSchema)

	// Only from where reading starts; numbers count from the start of the file.
	r = follow(t, path, FollowOptions{Last: 7})
	assert.Equal(t, span(6, 12), r.seqs)
	require.Len(t, r.damaged, 1)
	assert.Equal(t, 5, r.damaged[0].Line)
}

// The last record of a file may lack its newline for good.
func TestFollowUnended(t *testing.T) {
	log := sealedLog()
	log[1].lines[3] = bytes.TrimSuffix(log[1].lines[3], []byte("\n"))
	log[2].lines[3] = bytes.TrimSuffix(log[2].lines[3], []byte("\n"))
	path := writeFiles(t, log)
	assert.Equal(t, span(1, 12), follow(t, path, FollowOptions{Last: -1}).seqs)
	for _, last := range []int{1, 4, 5, 6} {
		assert.Len(t, follow(t, path, FollowOptions{Last: last}).seqs, last)
	}

	log = sealedLog()
	log[1].lines[3] = log[1].lines[3][:50]
	r := follow(t, writeFiles(t, log), FollowOptions{Last: -1})
	assert.Equal(t, append(span(1, 7), span(9, 12)...), r.seqs)
	require.Len(t, r.damaged, 1)
	assert.Equal(t, Damage{File: log[1].name, Line: 4, Err: ErrNotRecord}, r.damaged[0])
}

func TestFollowErrors(t *testing.T) {
	path := logPath(t)
	none := func([]byte, *Event) error { return nil }
	err := Follow(t.Context(), path, FollowOptions{Last: 1}, none)
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "there is no audit log at "+path)
	err = Follow(t.Context(), filepath.Dir(path), FollowOptions{Last: 1, Wait: true}, none)
	require.ErrorContains(t, err, "folder")

	path = writeFiles(t, sealedLog())
	stop := errors.New("stop")
	n := 0
	err = Follow(t.Context(), path, FollowOptions{Last: -1}, func([]byte, *Event) error {
		if n++; n == 6 {
			return stop
		}

		return nil
	})
	assert.Equal(t, stop, err, "as it is")
	assert.Equal(t, 6, n)
	err = Follow(t.Context(), path, FollowOptions{Wait: true, Idle: func() error { return stop }}, none)
	assert.Equal(t, stop, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Follow(ctx, path, FollowOptions{Last: -1}, none), context.Canceled)
	require.ErrorIs(t, Follow(ctx, path, FollowOptions{Last: 100}, none), context.Canceled)
	require.ErrorIs(t, Follow(ctx, path, FollowOptions{Wait: true}, none), context.Canceled)
}

// Between opening the live file and listing the others it may have become one.
func TestFilesBefore(t *testing.T) {
	log := sealedLog()
	path := writeFiles(t, log)
	dir := filepath.Dir(path)
	rotated, err := rotatedFiles(path)
	require.NoError(t, err)
	require.Len(t, rotated, 2)
	older := func(name string, first uint64) (firsts []uint64) {
		file, err := openTrailFile(dir, name, first)
		require.NoError(t, err)
		defer file.Close()
		for _, r := range before(dir, rotated, file) {
			firsts = append(firsts, r.first)
		}

		return firsts
	}

	assert.Equal(t, []uint64{1, 5}, older("audit.jsonl", 0))
	assert.Equal(t, []uint64{1}, older(log[1].name, 0), "opened as the live file")
	assert.Empty(t, older(log[0].name, 0))
	assert.Equal(t, []uint64{1}, older(log[1].name, 5))

	// By the number alone, where it has none of these names.
	require.NoError(t, os.Rename(filepath.Join(dir, log[0].name), filepath.Join(dir, "elsewhere")))
	assert.Equal(t, []uint64{1}, older("elsewhere", 0), "not what is newer")
}

// The live file was renamed just before it could be opened.
func TestTrailWithoutLiveFile(t *testing.T) {
	log := sealedLog()
	path := writeFiles(t, log)
	cur, err := openTrailFile(filepath.Dir(path), log[1].name, 5)
	require.NoError(t, err)
	tr := trail{path: path, cur: cur}
	defer func() { assert.NoError(t, tr.close()) }()
	require.NoError(t, tr.look())
	require.Empty(t, tr.ahead)
	require.NoError(t, os.Rename(path, filepath.Join(filepath.Dir(path), "audit-20261129T100000Z-000000000009.jsonl")))

	next, err := tr.nextLive()
	require.NoError(t, err)
	assert.Nil(t, next)
	require.Len(t, tr.ahead, 1)
	assert.Equal(t, uint64(9), tr.ahead[0].first)
}
