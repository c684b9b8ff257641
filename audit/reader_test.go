package audit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	files, err := Files(path)
	require.NoError(t, err)
	assert.Empty(t, files)

	for _, name := range []string{
		"audit-20261130T100000Z-000000000900.jsonl", // by seq, not by time
		"audit-20261201T100000Z-000000000001.jsonl",
		"audit-20261130T100000Z-1000000000000.jsonl", // more than 12 digits
		"audit-20261130T100001Z-000000000900.jsonl",
		"audit.jsonl",
		"audit.jsonl.lock",
		"audit.jsonl.1",
		"audit-20261130T100000Z-000000000900.jsonl.bak",
		"audit-20261130T100000Z-99999999999999999999.jsonl",
		"audit-2026-000000000001.jsonl",
		"auditxjsonl",
		"other-20261130T100000Z-000000000900.jsonl",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "audit-20261130T100000Z-000000000005.jsonl"), 0o700))

	files, err = Files(path)
	require.NoError(t, err)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	assert.Equal(t, []string{
		"audit-20261201T100000Z-000000000001.jsonl",
		"audit-20261130T100000Z-000000000900.jsonl",
		"audit-20261130T100001Z-000000000900.jsonl",
		"audit-20261130T100000Z-1000000000000.jsonl",
		"audit.jsonl",
	}, files)

	_, err = Files(filepath.Join(dir, "missing", "audit.jsonl"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestScan(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, tc := range []struct {
		name, in string
		want     []string
		skipped  Skipped
	}{
		{"empty", "", nil, Skipped{}},
		{"two", "a\nb\n", []string{"a", "b"}, Skipped{}},
		{"empty lines", "\n\n", []string{"", ""}, Skipped{}},
		{"torn", "a\nbcd", []string{"a"}, Skipped{TornBytes: 3}},
		{"longest", long + "\na\n", []string{long, "a"}, Skipped{}},
		{"too long", "a\n" + long + "x\nb\n", []string{"a", "b"}, Skipped{Overlong: 1}},
		{"far too long", strings.Repeat(long, 20) + "\nb\n", []string{"b"}, Skipped{Overlong: 1}},
		{"long and torn", "a\n" + strings.Repeat(long, 2), []string{"a"}, Skipped{TornBytes: 2 * maxLine}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			skipped, err := Scan(iotest.HalfReader(strings.NewReader(tc.in)), func(line []byte) error {
				got = append(got, string(line))

				return nil
			})
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.skipped, skipped)
		})
	}

	stop := errors.New("stop")
	_, err := Scan(strings.NewReader("a\nb\n"), func([]byte) error { return stop })
	assert.Equal(t, stop, err, "as it is")
	_, err = Scan(iotest.ErrReader(errDisk), func([]byte) error { return nil })
	require.ErrorIs(t, err, errDisk)
}

func TestParse(t *testing.T) {
	e := denied("example.com")
	line := string(sealed(&e))
	got, err := Parse([]byte(line))
	require.NoError(t, err)
	assert.Equal(t, "example.com", got.Dest)

	for _, tc := range []struct {
		name, in string
		want     error
	}{
		{"unknown key", strings.Replace(line, `{`, `{"new_key":{"a":[1]},`, 1), nil},
		{"next major", strings.Replace(line, `audit/1"`, `audit/2"`, 1), ErrSchema},
		{"next major, other types", strings.Replace(strings.Replace(line, `audit/1"`, `audit/2"`, 1), `"port":443`, `"port":"https"`, 1), ErrSchema},
		{"other types", strings.Replace(line, `"port":443`, `"port":"https"`, 1), ErrNotRecord},
		{"no schema", `{}`, ErrSchema},
		{"longer major", strings.Replace(line, `audit/1"`, `audit/10"`, 1), ErrSchema},
		{"torn", line[:50], ErrNotRecord},
		{"empty", "", ErrNotRecord},
		{"two", line + line, ErrNotRecord},
		{"list", "[]", ErrSchema},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.in))
			if tc.want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tc.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	path := logPath(t)
	l := openLog(t, Options{File: path, MaxSize: 1})
	ids := make([]string, 0, 4)
	for range 4 {
		e := denied("example.com")
		e.ID = NewID()
		ids = append(ids, e.ID)
		// An id elsewhere in the record, or as text, is not the record's id.
		e.Rule = &Rule{ID: ids[0]}
		e.Flow, e.Msg = ids[0], `"id":"`+ids[0]+`"`
		record(t, l, e)
	}
	appendFile(t, path, `{"id":"`+ids[1]+"\" torn\n")

	for _, id := range ids { // while the log is open
		line, ok, err := Find(t.Context(), path, id)
		require.NoError(t, err)
		require.True(t, ok)
		e, err := Parse(line)
		require.NoError(t, err)
		assert.Equal(t, id, e.ID)
	}
	for _, id := range []string{"", ids[0][:35], NewID(), `x"y`} {
		_, ok, err := Find(t.Context(), path, id)
		require.NoError(t, err)
		assert.False(t, ok, "%q", id)
	}
	closeLog(t, l)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := Find(ctx, path, ids[0])
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = Find(t.Context(), filepath.Join(path, "missing"), ids[0])
	require.Error(t, err)
}
