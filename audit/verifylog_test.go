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

// What the log itself leaves behind when it is rotated, restarted and killed is
// no fault.
func TestVerifyKilledLog(t *testing.T) {
	const kills = 5

	path := logPath(t)
	acked := 0
	for i := range kills {
		acked += len(killOnce(t, path, 200+i*371))
		r := verified(t, path) // the unfinished line is still at the end, if there is one
		require.True(t, r.OK())
		require.GreaterOrEqual(t, r.Records, uint64(acked))
	}
	l := openLog(t, Options{File: path})
	record(t, l, denied("example.com"))
	stats := l.Stats()
	closeLog(t, l)

	r := verified(t, path)
	require.True(t, r.OK())
	assert.Equal(t, uint64(1), r.First)
	assert.Equal(t, stats.LastSeq, r.Last)
	assert.Equal(t, stats.LastHash, r.LastHash)
	assert.LessOrEqual(t, r.Unfinished, kills)
	assert.Equal(t, r.Unfinished, r.Gaps)
	assert.Greater(t, r.Files, 3)
}

// The same, made to happen.
func TestVerifyWhatTheLogLeftBehind(t *testing.T) {
	const torn = `{"time":"2026-11-30T10:00:`

	reopen := func(t *testing.T, path string, maxSize int64) {
		l := openLog(t, Options{File: path, MaxSize: maxSize})
		record(t, l, denied("after.example.com"))
		closeLog(t, l)
	}
	for _, tc := range []struct {
		name string
		make func(t *testing.T, path string)
		want Report // without Last and LastHash
	}{
		{"unfinished line", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			appendFile(t, path, torn)
			reopen(t, path, 0)
		}, Report{Files: 1, Records: 5, First: 1, Unfinished: 1, Gaps: 1}},
		{"unfinished twice", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			appendFile(t, path, torn)
			reopen(t, path, 0)
			appendFile(t, path, torn+torn)
			reopen(t, path, 0)
		}, Report{Files: 1, Records: 7, First: 1, Unfinished: 2, Gaps: 2}},
		{"unfinished first line", func(t *testing.T, path string) {
			appendFile(t, path, torn)
			reopen(t, path, 0)
		}, Report{Files: 1, Records: 2, First: 1, Unfinished: 1, Gaps: 1}},
		{"unfinished line at the end of a full file", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			appendFile(t, path, torn)
			reopen(t, path, 1)
		}, Report{Files: 3, Records: 7, First: 1, Unfinished: 1, Gaps: 1}},
		{"unfinished first line of a later file", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			reopen(t, path, 1)
			require.NoError(t, os.WriteFile(path, []byte(torn), 0o600))
			reopen(t, path, 0)
			// It goes on and is rotated, by a name that is as near as can be.
			reopen(t, path, 1)
		}, Report{Files: 3, Records: 7, First: 1, Unfinished: 1, Gaps: 1}},
		{"zeros after a power cut", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			appendFile(t, path, string(make([]byte, 100<<10)))
			reopen(t, path, 0)
		}, Report{Files: 1, Records: 5, First: 1, Unfinished: 1, Gaps: 1}},
		{"write that can't be taken back", func(t *testing.T, path string) {
			fs := &faultyStorage{onTruncate: func() error { return errTrunc }}
			l := openLog(t, Options{File: path, storage: fs})
			record(t, l, denied("before.example.com"))
			fs.failWrites(100, errNoSpace)
			require.ErrorIs(t, l.Record(t.Context(), denied("lost.example.com")), ErrStorage)
			require.ErrorIs(t, l.Record(t.Context(), denied("lost.example.com")), ErrStorage)
			fs.heal()
			record(t, l, denied("after.example.com"))
			closeLog(t, l)
		}, Report{Files: 1, Records: 3, First: 1, Unfinished: 2, Gaps: 1, Dropped: 2}},
		{"newline that is missing for good", func(t *testing.T, path string) {
			fs := &faultyStorage{onTruncate: func() error { return errTrunc }}
			l := openLog(t, Options{File: path, MaxSize: 1, storage: fs})
			fs.set(func(s *faultyStorage) {
				s.onWrite = func(b []byte) (int, error) { return len(b) - 1, errNoSpace }
			})
			require.NoError(t, l.Record(t.Context(), denied("whole.example.com")))
			fs.heal()
			record(t, l, denied("after.example.com"))
			closeLog(t, l)
		}, Report{Files: 2, Records: 3, First: 1}},
		{"fsync fails", func(t *testing.T, path string) {
			fs := &faultyStorage{}
			l := openLog(t, Options{File: path, Sync: SyncAlways, storage: fs})
			record(t, l, denied("a.example.com"))
			fs.set(func(s *faultyStorage) { s.onSync = func() error { return errDisk } })
			require.ErrorIs(t, l.Record(t.Context(), denied("b.example.com")), ErrStorage)
			fs.heal()
			record(t, l, denied("c.example.com"))
			closeLog(t, l)
		}, Report{Files: 2, Records: 5, First: 1, Gaps: 1}},
		{"live file lost, and nothing of it known", func(t *testing.T, path string) {
			reopen(t, path, 1)
			reopen(t, path, 1)
			require.NoError(t, os.Remove(path))
			reopen(t, path, 0)
		}, Report{Files: 2, Records: 3, First: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := logPath(t)
			tc.make(t, path)
			r := verified(t, path)
			assert.True(t, r.OK())
			r.Last, r.LastHash = 0, ""
			assert.Equal(t, tc.want, r)
		})
	}
}

// What the log noticed itself and is a fault all the same.
func TestVerifyWhatTheLogNoticed(t *testing.T) {
	reopen := func(t *testing.T, path string) {
		l := openLog(t, Options{File: path})
		record(t, l, denied("after.example.com"))
		closeLog(t, l)
	}
	for _, tc := range []struct {
		name string
		make func(t *testing.T, path string)
		want Problem // without File and Text
		n    int
	}{
		{"foreign lines behind the end", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			appendFile(t, path, "foreign\nlines\n")
			reopen(t, path)
		}, Problem{Line: 4, Kind: KindNotRecord}, 2},
		{"foreign and unfinished", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			appendFile(t, path, "foreign\n{")
			reopen(t, path)
		}, Problem{Line: 4, Kind: KindNotRecord}, 2},
		{"last record altered", func(t *testing.T, path string) {
			lines := writeLog(t, path, 3)
			content := bytes.Join(lines, []byte("\n"))
			content[len(content)-200] ^= 1
			require.NoError(t, os.WriteFile(path, append(content, '\n'), 0o600))
			reopen(t, path)
		}, Problem{Line: 3, Seq: 3, Kind: KindAltered}, 1},
		{"more than the log accounts for", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			appendFile(t, path, "{")
			reopen(t, path)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, bytes.Replace(b, []byte("\n{\n"), []byte("\n{\n{\n"), 1), 0o600))
		}, Problem{Line: 4, Kind: KindNotRecord}, 2},
		{"empty line beside an unfinished one", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			appendFile(t, path, "{")
			reopen(t, path)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, bytes.Replace(b, []byte("\n{\n"), []byte("\n\n{\n"), 1), 0o600))
		}, Problem{Line: 4, Kind: KindNotRecord}, 2},
		{"record in front of an unfinished line replaced", func(t *testing.T, path string) {
			lines := writeLog(t, path, 3)
			appendFile(t, path, "unfinished")
			reopen(t, path)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			removed := append(bytes.Clone(lines[2]), "\nunfinished\n"...)
			require.NoError(t, os.WriteFile(path, bytes.Replace(b, removed, []byte("short\n"), 1), 0o600))
		}, Problem{Line: 3, Kind: KindNotRecord}, 1},
		{"all records in front of an unfinished line removed", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			appendFile(t, path, "unfinished")
			reopen(t, path)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, b[bytes.Index(b, []byte("unfinished\n")):], 0o600))
		}, Problem{Line: 1, Kind: KindNotRecord}, 2},
		{"record in front of an unfinished line removed", func(t *testing.T, path string) {
			lines := writeLog(t, path, 3)
			appendFile(t, path, "unfinished")
			reopen(t, path)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			removed := append(bytes.Clone(lines[2]), '\n')
			require.NoError(t, os.WriteFile(path, bytes.Replace(b, removed, nil, 1), 0o600))
		}, Problem{Line: 3, Kind: KindNotRecord}, 1},
		{"foreign, and the unfinished line removed", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			appendFile(t, path, "foreign\nunfinished")
			reopen(t, path)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, bytes.Replace(b, []byte("unfinished\n"), nil, 1), 0o600))
		}, Problem{Line: 4, Kind: KindNotRecord}, 1},
		{"begun anew behind an old file", func(t *testing.T, path string) {
			writeLog(t, path, 3)
			old, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.Remove(path))
			writeLog(t, path, 2)
			require.NoError(t, os.WriteFile(
				filepath.Join(filepath.Dir(path), "audit-20261130T100000Z-000000000001.jsonl"), old, 0o600))
		}, Problem{Line: 1, Seq: 1, Kind: KindChain}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := logPath(t)
			tc.make(t, path)
			r := verified(t, path)
			require.NotNil(t, r.Problem)
			assert.Equal(t, "audit.jsonl", r.Problem.File)
			r.Problem.File, r.Problem.Text = "", ""
			assert.Equal(t, tc.want, *r.Problem)
			assert.Equal(t, tc.n, r.Problems)
		})
	}
}

// Another program takes the file away, or cuts it, while the log is open. The log
// says so in an audit.rotated without a file name.
func TestVerifyFileTakenAway(t *testing.T) {
	for _, tc := range []struct {
		name string
		take func(t *testing.T, path string, second int64)
		want Problem // without Text
	}{
		{"moved", func(t *testing.T, path string, _ int64) {
			require.NoError(t, os.Rename(path, path+".1"))
		}, Problem{File: "audit.jsonl", Line: 1, Seq: 4, Kind: KindMissingFile}},
		{"emptied", func(t *testing.T, path string, _ int64) {
			require.NoError(t, os.Truncate(path, 0))
		}, Problem{File: "audit.jsonl", Line: 1, Seq: 4, Kind: KindMissingFile}},
		{"cut", func(t *testing.T, path string, second int64) {
			require.NoError(t, os.Truncate(path, second))
		}, Problem{File: "audit.jsonl", Line: 3, Seq: 4, Kind: KindCutTail}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := logPath(t)
				l := openLog(t, Options{File: path})
				record(t, l, denied("a.example.com"), denied("b.example.com"))
				second := fileSize(t, path)
				record(t, l, denied("c.example.com"))
				time.Sleep(2 * checkEvery)
				tc.take(t, path, second)
				record(t, l, denied("d.example.com"))
				closeLog(t, l)

				r := verified(t, path)
				require.NotNil(t, r.Problem)
				assert.Contains(t, r.Problem.Text, "another program")
				r.Problem.Text = ""
				assert.Equal(t, tc.want, *r.Problem)
			})
		})
	}
}

// A log can be verified while it is written and rotated.
func TestVerifyBusyLog(t *testing.T) {
	path := logPath(t)
	l := openLog(t, Options{File: path, MaxSize: 8 << 10, Sync: time.Hour, storage: unsynced{}})
	record(t, l, denied("example.com"))
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- recordUntil(l, stop) }()

	for l.Stats().LastSeq < 2000 {
		stats := l.Stats()
		link, err := ParseLink(stats.LastSeq, stats.LastHash)
		require.NoError(t, err)
		r, err := VerifyWitness(t.Context(), path, link)
		require.NoError(t, err)
		require.True(t, r.OK(), "%+v", r.Problem)
		require.GreaterOrEqual(t, r.Last, stats.LastSeq)
		require.Equal(t, r.Last, r.Records)
	}
	close(stop)
	require.NoError(t, <-done)
}

// recordUntil records until stop is closed.
func recordUntil(l *Log, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := l.Record(context.Background(), denied("example.com")); err != nil {
			return err
		}
	}
}

func TestParseLink(t *testing.T) {
	p, ok := splitLine(chainOf(1)[0])
	require.True(t, ok)
	got, err := ParseLink(1, p.link.HashString())
	require.NoError(t, err)
	assert.Equal(t, p.link, got)
	for _, bad := range []string{"", "ab", p.link.HashString() + "00", strings.ToUpper(p.link.HashString()), strings.Repeat("g", 64)} {
		_, err = ParseLink(1, bad)
		require.Error(t, err, bad)
	}
}
