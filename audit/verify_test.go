package audit

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sealedFile is one file of a made-up log.
type sealedFile struct {
	name  string
	lines [][]byte // with their newlines
}

// sealedLog makes the lines of a log of 12 records in three files of four, the
// later ones with the note of their rotation first.
func sealedLog() []sealedFile {
	var (
		enc  encoder
		link Link
		s    = newSealer()
		log  []sealedFile
	)
	for i, first := range []uint64{1, 5, 9} {
		name := fmt.Sprintf("audit-202611%dT100000Z-%012d.jsonl", 27+i, first)
		if i == 2 {
			name = "audit.jsonl"
		}
		file := sealedFile{name: name}
		for n := range uint64(4) {
			e := denied(fmt.Sprintf("host%d.example.com", first+n))
			if n == 0 && i > 0 {
				e = rotationEvent(&Rotation{
					File: log[i-1].name, FirstSeq: first - 4, LastSeq: link.Seq, LastHash: link.HashString(),
				})
			}
			e.Time = time.Date(2026, 10, 29+i, 10, 0, int(n), 0, time.UTC)
			enc.encode(&e)
			var line []byte
			line, link = s.seal(nil, enc.buf, link)
			file.lines = append(file.lines, line)
		}
		log = append(log, file)
	}

	return log
}

// writeFiles writes a made-up log and returns its path.
func writeFiles(t *testing.T, log []sealedFile) string {
	t.Helper()

	dir := t.TempDir()
	for _, file := range log {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file.name), bytes.Join(file.lines, nil), 0o600))
	}

	return filepath.Join(dir, "audit.jsonl")
}

func verified(t *testing.T, path string) Report {
	t.Helper()

	r, err := Verify(t.Context(), path)
	require.NoError(t, err)
	if r.Problem != nil {
		t.Log(*r.Problem)
	}
	assert.Equal(t, r.OK(), r.Problem == nil)

	return r
}

func TestVerifySound(t *testing.T) {
	log := sealedLog()
	r := verified(t, writeFiles(t, log))
	last, ok := splitLine(log[2].lines[3])
	require.True(t, ok)
	assert.Equal(t, Report{
		Files: 3, Records: 12, First: 1, Last: 12, LastHash: last.link.HashString(),
	}, r)
}

// What can't be told from a log that is sound, or is no fault.
func TestVerifyForgives(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(log []sealedFile) []sealedFile
		want   Report // without LastHash
	}{
		{"older files elsewhere", func(log []sealedFile) []sealedFile {
			return log[1:]
		}, Report{Files: 2, Records: 8, First: 5, Last: 12}},
		{"only the live file", func(log []sealedFile) []sealedFile {
			return log[2:]
		}, Report{Files: 1, Records: 4, First: 9, Last: 12}},
		{"no live file", func(log []sealedFile) []sealedFile {
			return log[:2]
		}, Report{Files: 2, Records: 8, First: 1, Last: 8}},
		{"empty live file", func(log []sealedFile) []sealedFile {
			log[2].lines = nil

			return log
		}, Report{Files: 3, Records: 8, First: 1, Last: 8}},
		{"nothing", func(log []sealedFile) []sealedFile {
			log[2].lines = nil

			return log[2:]
		}, Report{Files: 1}},
		{"tail cut at a newline", func(log []sealedFile) []sealedFile {
			log[2].lines = log[2].lines[:2]

			return log
		}, Report{Files: 3, Records: 10, First: 1, Last: 10}},
		{"tail cut within a line", func(log []sealedFile) []sealedFile {
			log[2].lines[3] = log[2].lines[3][:100]

			return log
		}, Report{Files: 3, Records: 11, First: 1, Last: 11, TornBytes: 100}},
		{"last newline cut", func(log []sealedFile) []sealedFile {
			log[2].lines[3] = bytes.TrimSuffix(log[2].lines[3], []byte("\n"))

			return log
		}, Report{Files: 3, Records: 12, First: 1, Last: 12}},
		{"last newline of a rotated file cut", func(log []sealedFile) []sealedFile {
			log[1].lines[3] = bytes.TrimSuffix(log[1].lines[3], []byte("\n"))

			return log
		}, Report{Files: 3, Records: 12, First: 1, Last: 12}},
		{"zeros behind the end", func(log []sealedFile) []sealedFile {
			log[2].lines = append(log[2].lines, make([]byte, 100<<10))

			return log
		}, Report{Files: 3, Records: 12, First: 1, Last: 12, TornBytes: 100 << 10}},
		{"torn, rotated and not gone on yet", func(log []sealedFile) []sealedFile {
			log[1].lines[3] = log[1].lines[3][:100]
			log[2].lines = nil

			return log
		}, Report{Files: 3, Records: 7, First: 1, Last: 7, TornBytes: 100}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := verified(t, writeFiles(t, tc.change(sealedLog())))
			r.LastHash = ""
			assert.Equal(t, tc.want, r)
		})
	}
}

// Every byte of a log counts: with any one of them changed, the fault is found,
// unless it is the newline at the very end, which leaves an unfinished line.
func TestVerifyFindsEveryFlippedByte(t *testing.T) {
	log := sealedLog()
	path := writeFiles(t, log)
	for i, file := range log {
		f, err := os.OpenFile(filepath.Join(filepath.Dir(path), file.name), os.O_RDWR, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		sound := bytes.Join(file.lines, nil)
		for at := range sound {
			if at%7 != 0 && (i < len(log)-1 || at < len(sound)-2*len(file.lines[3])) {
				continue // to save time; of the last two lines every byte is tried
			}
			// A bit that changes with the place.
			_, err = f.WriteAt([]byte{sound[at] ^ 1<<(at%8)}, int64(at))
			require.NoError(t, err)
			r, err := Verify(t.Context(), path)
			require.NoError(t, err)
			_, err = f.WriteAt(sound[at:at+1], int64(at))
			require.NoError(t, err)

			if i == len(log)-1 && at == len(sound)-1 {
				assert.True(t, r.OK())
				assert.Equal(t, int64(len(file.lines[3])), r.TornBytes)

				continue
			}
			if r.OK() || r.Problem.File != file.name || r.Problem.Line != 1+bytes.Count(sound[:at], []byte("\n")) {
				require.Fail(t, "not found", "byte %d of %s: %+v", at, file.name, r.Problem)
			}
		}
	}
	require.True(t, verified(t, path).OK())
}

func TestVerifyWitness(t *testing.T) {
	link := func(log []sealedFile, file, line int) Link {
		p, ok := splitLine(log[file].lines[line])
		require.True(t, ok)

		return p.link
	}
	log := sealedLog()
	last := link(log, 2, 3)
	other := last
	other.Hash[0]++
	for _, tc := range []struct {
		name    string
		change  func(log []sealedFile) []sealedFile
		witness Link
		want    *Problem // without Text
	}{
		{"sound", nil, last, nil},
		{"older than the log", nil, link(log, 1, 2), nil},
		{"of a file that is elsewhere", func(log []sealedFile) []sealedFile { return log[1:] }, link(log, 0, 2), nil},
		{"tail cut", func(log []sealedFile) []sealedFile {
			log[2].lines = log[2].lines[:2]

			return log
		}, last, &Problem{File: "audit.jsonl", Line: 3, Seq: 11, Kind: KindCutTail}},
		{"tail cut within a line", func(log []sealedFile) []sealedFile {
			log[2].lines[3] = log[2].lines[3][:100]

			return log
		}, last, &Problem{File: "audit.jsonl", Line: 4, Seq: 12, Kind: KindCutTail}},
		{"live file emptied", func(log []sealedFile) []sealedFile {
			log[2].lines = nil

			return log
		}, last, &Problem{File: "audit.jsonl", Line: 1, Seq: 9, Kind: KindCutTail}},
		{"live file deleted", func(log []sealedFile) []sealedFile {
			return log[:2]
		}, last, &Problem{File: log[1].name, Line: 5, Seq: 9, Kind: KindCutTail}},
		{"all files deleted", func([]sealedFile) []sealedFile {
			return nil
		}, last, &Problem{File: "audit.jsonl", Line: 1, Seq: 12, Kind: KindMissingFile}},
		{"written anew", nil, other, &Problem{File: "audit.jsonl", Line: 4, Seq: 12, Kind: KindChain}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := sealedLog()
			if tc.change != nil {
				log = tc.change(log)
			}
			r, err := VerifyWitness(t.Context(), writeFiles(t, log), tc.witness)
			require.NoError(t, err)
			if tc.want == nil {
				assert.True(t, r.OK())

				return
			}
			require.NotNil(t, r.Problem)
			assert.NotEmpty(t, r.Problem.Text)
			r.Problem.Text = ""
			assert.Equal(t, tc.want, r.Problem)
		})
	}
}

func TestVerifyUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	_, err := Verify(t.Context(), path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "there is no audit log at "+path)
	_, err = Verify(t.Context(), filepath.Join(filepath.Dir(path), "missing", "audit.jsonl"))
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = Verify(t.Context(), path)
	require.ErrorContains(t, err, "folder")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Verify(ctx, writeFiles(t, sealedLog()))
	require.ErrorIs(t, err, context.Canceled)
}

func TestVerifyFileGivenAnotherNumber(t *testing.T) {
	log := sealedLog()
	log[1].name = strings.Replace(log[1].name, "-000000000005", "-000000000006", 1)
	r := verified(t, writeFiles(t, log))
	assert.Equal(t, 1, r.Problems)
	assert.Equal(t, &Problem{
		File: log[1].name, Line: 1, Seq: 5, Kind: KindChain,
		Text: "by its name this file begins with record 6: it is another file, renamed",
	}, r.Problem)
}
