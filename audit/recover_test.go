package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writeLog makes a sound log with n lines and returns them.
func writeLog(t *testing.T, path string, n int) [][]byte {
	t.Helper()

	l := openLog(t, Options{File: path})
	for range n {
		record(t, l, denied("example.com"))
	}
	closeLog(t, l)

	return readLines(t, path)
}

func TestOpenContinues(t *testing.T) {
	whole := func(lines [][]byte) string { return string(bytes.Join(lines, []byte("\n"))) + "\n" }
	for _, tc := range []struct {
		name string
		file func(lines [][]byte) string
		// last is the number of the line the chain continues from, bad how many
		// lines then are no records.
		last uint64
		bad  int
		gap  *Gap // without times
	}{
		{"sound", whole, 3, 0, nil},
		{"torn", func(lines [][]byte) string {
			return whole(lines) + string(lines[0][:100])
		}, 3, 1, &Gap{TornBytes: 100, Cause: CauseKilled}},
		{"torn by one byte", func(lines [][]byte) string {
			return whole(lines) + "{"
		}, 3, 1, &Gap{TornBytes: 1, Cause: CauseKilled}},
		{"only the newline is missing", func(lines [][]byte) string {
			return strings.TrimSuffix(whole(lines), "\n")
		}, 3, 0, nil},
		{"zeros after a power cut", func(lines [][]byte) string {
			return whole(lines) + strings.Repeat("\x00", 200<<10)
		}, 3, 0, &Gap{TornBytes: 200 << 10, Cause: CauseKilled}},
		{"last line edited", func(lines [][]byte) string {
			return strings.Replace(whole(lines), `"seq":3`, `"seq":4`, 1)
		}, 2, 0, &Gap{Unreadable: 1, Cause: CauseIOError}},
		{"foreign lines behind", func(lines [][]byte) string {
			return whole(lines) + "\n{}\nnot json\n"
		}, 3, 3, &Gap{Unreadable: 3, Cause: CauseIOError}},
		{"foreign line larger than a block", func(lines [][]byte) string {
			return whole(lines) + strings.Repeat("x", 100<<10) + "\n"
		}, 3, 0, &Gap{Unreadable: 1, Cause: CauseIOError}},
		{"foreign and torn", func(lines [][]byte) string {
			return whole(lines) + "{}\n{"
		}, 3, 2, &Gap{Unreadable: 1, TornBytes: 1, Cause: CauseIOError}},
		{"nothing valid", func([][]byte) string {
			return "a\nb\n"
		}, 0, 2, &Gap{Unreadable: 2, Cause: CauseIOError}},
		{"newline only", func([][]byte) string {
			return "\n"
		}, 0, 1, &Gap{Unreadable: 1, Cause: CauseIOError}},
		{"torn first line", func(lines [][]byte) string {
			return string(lines[0][:100])
		}, 0, 1, &Gap{TornBytes: 100, Cause: CauseKilled}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := logPath(t)
			lines := writeLog(t, path, 3)
			content := tc.file(lines)
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))

			l := openLog(t, Options{File: path})
			assert.Equal(t, "unclean", l.PreviousStop())
			record(t, l, denied("after.example.com"))
			closeLog(t, l)

			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.HasPrefix(b, []byte(content)), "what was there stays as it was")
			rest := bytes.TrimPrefix(b[len(content):], []byte("\n"))
			var added []Event
			prev := Link{Seq: tc.last}
			if tc.last > 0 {
				p, ok := splitLine(lines[tc.last-1])
				require.True(t, ok)
				prev = p.link
			}
			_, err = Scan(bytes.NewReader(rest), func(line []byte) (err error) {
				prev, err = CheckLine(line, prev)
				require.NoError(t, err)
				e, err := Parse(line)
				added = append(added, e)

				return err
			})
			require.NoError(t, err)

			if tc.gap == nil {
				require.Equal(t, []Name{EgressDenied}, names(added))
			} else {
				require.Equal(t, []Name{AuditGap, EgressDenied}, names(added))
				got := added[0].Gap
				assert.Equal(t, tc.last == 0, got.From.IsZero(), "from the last good record, if there is one")
				assert.False(t, got.To.IsZero())
				got.From, got.To = tc.gap.From, tc.gap.To
				assert.Equal(t, tc.gap, got)
			}
			if tc.bad > 0 {
				verify(t, path, tc.bad)
			}
		})
	}
}

func TestOpenContinuesFromRotatedFile(t *testing.T) {
	for _, tc := range []struct {
		name string
		// prepare changes the live file (path) after two rotations.
		prepare func(t *testing.T, path string)
		want    []Name
		stop    string
	}{
		{"live file missing", func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
		}, []Name{AuditRotated, EgressDenied}, "unclean"},
		{"live file empty", func(t *testing.T, path string) {
			require.NoError(t, os.Truncate(path, 0))
		}, []Name{AuditRotated, EgressDenied}, "unclean"},
		{"live file unreadable", func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, []byte("xyz\n"), 0o600))
		}, []Name{AuditGap, EgressDenied}, "unclean"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := logPath(t)
			l := openLog(t, Options{File: path, MaxSize: 1})
			record(t, l, denied("a.example.com"), denied("b.example.com"), denied("c.example.com"))
			closeLog(t, l)
			files, err := Files(path)
			require.NoError(t, err)
			require.Len(t, files, 3)
			tc.prepare(t, path)

			l = openLog(t, Options{File: path})
			assert.Equal(t, tc.stop, l.PreviousStop())
			assert.Equal(t, uint64(4), l.Stats().LastSeq, "rotated a, rotated b, and the new note")
			record(t, l, denied("d.example.com"))
			closeLog(t, l)

			lines := readLines(t, path)
			events := make([]Event, 0, 2)
			for _, line := range lines[len(lines)-2:] {
				e, err := Parse(line)
				require.NoError(t, err)
				events = append(events, e)
			}
			require.Equal(t, tc.want, names(events))
			if events[0].Event == AuditRotated {
				assert.Equal(t, filepath.Base(files[1]), events[0].Rotated.File)
				assert.Equal(t, uint64(2), events[0].Rotated.FirstSeq)
				assert.Equal(t, uint64(3), events[0].Rotated.LastSeq)
				verify(t, path, 0)
			} else {
				verify(t, path, 1)
			}
		})
	}
}

// A start that finds damage while the disk is full starts all the same, and says
// what it found once it can.
func TestOpenWithDamageAndFullDisk(t *testing.T) {
	path := logPath(t)
	writeLog(t, path, 1)
	appendFile(t, path, "{")
	fs := &faultyStorage{}
	fs.failWrites(0, errNoSpace)
	l := openLog(t, Options{File: path, storage: fs})
	assert.False(t, l.Healthy())

	fs.heal()
	record(t, l, denied("after.example.com"))
	closeLog(t, l)
	events := verify(t, path, 1)
	require.Equal(t, []Name{EgressDenied, AuditGap, EgressDenied}, names(events))
	assert.Equal(t, int64(1), events[1].Gap.TornBytes)
}

// countingReader counts what is read.
type countingReader struct {
	*bytes.Reader
	n int
}

func (r *countingReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.Reader.ReadAt(p, off)
	r.n += n

	return n, err
}

func TestReadTailReadsOnlyTheTail(t *testing.T) {
	file := bytes.Join(chainOf(5000), nil)
	require.Greater(t, len(file), 1<<20)
	r := &countingReader{Reader: bytes.NewReader(file)}
	got, err := readTail(r, int64(len(file)))
	require.NoError(t, err)
	assert.True(t, got.found)
	assert.Equal(t, uint64(5000), got.link.Seq)
	assert.LessOrEqual(t, r.n, 64<<10)
}

// Lines that lie across blocks come out whole, in reverse order.
func TestScanBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []string
		end  string
	}{
		{"nothing", nil, ""},
		{"one", []string{"a"}, ""},
		{"unended", []string{"a", "bc"}, "def"},
		{"only unended", nil, "def"},
		{"empty lines", []string{"", "", "a", ""}, ""},
		{"across a block", []string{"first", strings.Repeat("x", 10<<10), strings.Repeat("y", 16<<10), "z"}, strings.Repeat("w", 50<<10)},
		{"longest", []string{strings.Repeat("x", maxLine)}, ""},
		{"too long", []string{"a", strings.Repeat("x", maxLine+1), "b"}, ""},
		{"many blocks", []string{"a", strings.Repeat("x", 300<<10), "b"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := tc.end
			if len(tc.in) > 0 {
				file = strings.Join(tc.in, "\n") + "\n" + tc.end
			}
			want := tc.in
			if tc.end != "" {
				want = append(append([]string{}, tc.in...), tc.end)
			}

			i := len(want)
			err := scanBack(strings.NewReader(file), int64(len(file)),
				func(line []byte, length int64, ended bool) bool {
					i--
					require.GreaterOrEqual(t, i, 0)
					assert.Equal(t, int64(len(want[i])), length)
					if length <= maxLine {
						assert.Equal(t, want[i], string(line))
					} else {
						assert.Nil(t, line)
					}
					assert.Equal(t, i < len(tc.in), ended)

					return true
				})
			require.NoError(t, err)
			assert.Zero(t, i, "all lines")
		})
	}
}
