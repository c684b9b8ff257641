package audit

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever is done to the lines of a log, if no problem is found then its records
// are the ones that were written, without a hole: only the end may be missing,
// and what stands in the place of a line that the log left unfinished.
func TestVerifyOverlooksNothing(t *testing.T) {
	// A log that was killed twice, with the accounts of that.
	path := logPath(t)
	writeLog(t, path, 3)
	for _, torn := range []string{"unfinished line", `{"time":"2026-11-30T10:00:00.000Z","level":"WARN"`} {
		appendFile(t, path, torn)
		l := openLog(t, Options{File: path})
		record(t, l, denied("after.example.com"), denied("later.example.com"))
		closeLog(t, l)
	}
	sound := readLines(t, path)
	require.Len(t, sound, 3+2*4)
	written := recordsOf(sound)
	require.True(t, verified(t, path).OK())

	rapid.Check(t, func(rt *rapid.T) {
		lines := slices.Clone(sound)
		for range rapid.IntRange(1, 3).Draw(rt, "edits") {
			at := rapid.IntRange(0, len(lines)-1).Draw(rt, "at")
			to := rapid.IntRange(at+1, min(len(lines), at+3)).Draw(rt, "to")
			other := rapid.SampledFrom(append(slices.Clone(sound), []byte("x"), []byte(""), []byte("some garbage"))).Draw(rt, "other")
			switch rapid.SampledFrom([]string{"delete", "insert", "replace", "swap", "flip"}).Draw(rt, "edit") {
			case "delete":
				lines = slices.Delete(lines, at, to)
			case "insert":
				lines = slices.Insert(lines, at, other)
			case "replace":
				lines = slices.Replace(lines, at, to, other)
			case "swap":
				lines[at], lines[to-1] = lines[to-1], lines[at]
			case "flip":
				if i := rapid.IntRange(0, 2000).Draw(rt, "byte"); i < len(lines[at]) && lines[at][i] != '\n'^1 {
					lines[at] = bytes.Clone(lines[at])
					lines[at][i] ^= 1
				}
			}
			if len(lines) == 0 {
				return
			}
		}
		require.NoError(rt, os.WriteFile(path, append(bytes.Join(lines, []byte("\n")), '\n'), 0o600))
		r, err := Verify(t.Context(), path)
		require.NoError(rt, err)
		if !r.OK() {
			return
		}
		left := recordsOf(lines)
		require.LessOrEqual(rt, len(left), len(written))
		assert.Equal(rt, written[:len(left)], left)
	})
}

// recordsOf returns those of the lines that have the form of a record.
func recordsOf(lines [][]byte) (found []string) {
	for _, line := range lines {
		if _, ok := splitLine(line); ok {
			found = append(found, string(line))
		}
	}

	return found
}
