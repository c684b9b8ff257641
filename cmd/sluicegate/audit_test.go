package main

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluicegate/audit"
	"sluicegate/internal/control"
	"sluicegate/internal/daemon"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const noDaemon = "    no daemon answers; a tail that was cut off can't be seen without it\n"

// threeFiles writes a log of five records in three files, and returns them.
func threeFiles(t *testing.T, file string) []string {
	t.Helper()
	writeLog(t, file, 1, refusal("a.example.com"), refusal("b.example.com"), refusal("c.example.com"))
	files, err := audit.Files(file)
	require.NoError(t, err)
	require.Len(t, files, 3)
	return files
}

// edit changes a file.
func edit(t *testing.T, file string, change func(string) string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(change(string(b))), 0o600))
}

func TestAuditVerify(t *testing.T) {
	for name, tc := range map[string]struct {
		tamper func(t *testing.T, files []string)
		code   int
		// out is the whole output, with FILE0 to FILE2 for the files; a * stands
		// for the hash.
		out string
	}{
		"sound": {
			func(*testing.T, []string) {}, exitOK,
			"ok: 5 records in 3 files, 1 to 5, last hash *\n" + noDaemon,
		},
		"altered": {
			func(t *testing.T, files []string) {
				edit(t, files[1], func(s string) string { return strings.Replace(s, "b.example", "x.example", 1) })
			}, exitAltered,
			"altered: FILE1:2: the bytes of this record are not the ones that were hashed (record 3); 1 problem in 5 records\n" + noDaemon,
		},
		"line removed": {
			func(t *testing.T, files []string) {
				edit(t, files[2], func(s string) string { _, rest, _ := strings.Cut(s, "\n"); return rest })
			}, exitAltered,
			"chain: FILE2:1: record 4 is missing in front of this record (record 5); 1 problem in 4 records\n" + noDaemon,
		},
		"garbage": {
			func(t *testing.T, files []string) {
				edit(t, files[0], func(s string) string { return s + "\x1b[2J\n\n" })
			}, exitAltered,
			"not_record: FILE0:2: this line is not a record; 2 problems in 5 records\n" + noDaemon,
		},
		"file missing": {
			func(t *testing.T, files []string) { require.NoError(t, os.Remove(files[1])) }, exitCut,
			"missing_file: FILE2:1: records 2 to 3 are not here: the file before this one, NAME1, held them up to record 3 (record 4); 1 problem in 3 records\n" + noDaemon,
		},
		"end of a file cut": {
			func(t *testing.T, files []string) {
				edit(t, files[1], func(s string) string { first, _, _ := strings.Cut(s, "\n"); return first + "\n" })
			}, exitCut,
			"cut_tail: FILE1:2: the end of this file was cut off: record 3 is not here; 1 problem in 4 records\n" + noDaemon,
		},
		"older files elsewhere": {
			func(t *testing.T, files []string) { require.NoError(t, os.Remove(files[0])) }, exitOK,
			"ok: 4 records in 2 files, 2 to 5, last hash *\n    starts at record 2; older files are not here\n" + noDaemon,
		},
		"unfinished": {
			func(t *testing.T, files []string) { edit(t, files[2], func(s string) string { return s + "{" }) }, exitOK,
			"ok: 5 records in 3 files, 1 to 5, last hash *\n" +
				"    the last line is unfinished (1 bytes): it is being written, or the last run was killed\n" + noDaemon,
		},
		"killed": {
			func(t *testing.T, files []string) {
				edit(t, files[2], func(s string) string { return s + "{" })
				writeLog(t, files[2], 0, refusal("d.example.com"))
			}, exitOK,
			"ok: 7 records in 3 files, 1 to 7, last hash *\n" +
				"    the log accounts for 1 line(s) it left unfinished; no hash covers what is in them\n" +
				"    the log itself tells of losses in 1 audit.gap record(s); 0 record(s) could not be written\n" + noDaemon,
		},
		"empty": {
			func(t *testing.T, files []string) {
				require.NoError(t, os.Remove(files[0]))
				require.NoError(t, os.Remove(files[1]))
				require.NoError(t, os.Truncate(files[2], 0))
			}, exitOK,
			"ok: no records in 1 file\n" + noDaemon,
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := alone(t)
			files := threeFiles(t, file)
			tc.tamper(t, files)
			want := strings.NewReplacer("FILE0", files[0], "FILE1", files[1], "FILE2", files[2],
				"NAME1", filepath.Base(files[1])).Replace(tc.out)
			for _, args := range [][]string{nil, {"--file", file}} {
				r := command(t, append([]string{"audit", "verify"}, args...)...)
				assert.Equal(t, tc.code, r.code)
				assert.Empty(t, r.err)
				before, rest, found := strings.Cut(want, "*")
				if found {
					assert.True(t, strings.HasPrefix(r.out, before), r.out)
					assert.Regexp(t, `^[0-9a-f]{64}\n`, r.out[len(before):])
					assert.True(t, strings.HasSuffix(r.out, rest), r.out)
				} else {
					assert.Equal(t, want, r.out)
				}
			}
		})
	}
}

func TestAuditVerifyUnreadable(t *testing.T) {
	file := alone(t)
	r := command(t, "audit", "verify")
	assert.Equal(t, exitUnreadable, r.code)
	assert.True(t, strings.HasPrefix(r.out, "unreadable: there is no audit log at "+file), r.out)
	assert.Equal(t, 1, strings.Count(r.out, "\n"))
	assert.Empty(t, r.err)

	require.NoError(t, os.MkdirAll(file, 0o700))
	r = command(t, "audit", "verify", "--json")
	assert.Equal(t, exitUnreadable, r.code)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.out), &got))
	assert.Equal(t, "unreadable", got["verdict"])
	assert.Contains(t, got["error"], "is a folder")
}

func TestAuditVerifyJSON(t *testing.T) {
	file := alone(t)
	files := threeFiles(t, file)
	edit(t, files[1], func(s string) string { return strings.Replace(s, "b.example", "x.example", 1) })
	r := command(t, "audit", "verify", "--json")
	assert.Equal(t, exitAltered, r.code)
	line := strings.SplitAfter(r.out, `"last_hash": "`)
	require.Len(t, line, 2)
	hash := line[1][:64]
	assert.JSONEq(t, `{
		"verdict": "altered", "file": "`+file+`", "files": 3, "records": 5, "first_seq": 1, "last_seq": 5,
		"last_hash": "`+hash+`", "problems": 1,
		"problem": {
			"file": "`+filepath.Base(files[1])+`", "line": 2, "seq": 3, "kind": "altered",
			"text": "the bytes of this record are not the ones that were hashed"
		},
		"notes": ["no daemon answers; a tail that was cut off can't be seen without it"]
	}`, r.out)
}

// serveStatus answers in place of a daemon of the settings of alone.
func serveStatus(t *testing.T, status func() daemon.Status) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+daemon.RouteStatus, func(w http.ResponseWriter, _ *http.Request) {
		control.WriteJSON(w, status())
	})
	run, err := os.MkdirTemp("", "sg") // short, for the socket's path
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(run)) })
	t.Setenv("XDG_RUNTIME_DIR", run)
	s, err := control.Listen(t.Context(), control.Options{Path: filepath.Join(run, "sluicegate", "control.sock"), Handler: mux})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	s.Start()
}

// A running daemon is a witness of what it wrote.
func TestAuditVerifyWithDaemon(t *testing.T) {
	for name, tc := range map[string]struct {
		tamper func(t *testing.T, files []string)
		status func(s *daemon.AuditStatus)
		code   int
		first  string // beginning of the first line
		note   string
	}{
		"sound": {code: exitOK, first: "ok: 5 records", note: "which had written up to record 5"},
		"more was written since": {
			status: func(s *daemon.AuditStatus) { s.LastSeq, s.LastHash = 0, "" },
			code:   exitOK, first: "ok: 5 records", note: "has written no record yet",
		},
		"tail cut": {
			tamper: func(t *testing.T, files []string) { require.NoError(t, os.Truncate(files[2], 0)) },
			code:   exitCut, first: "cut_tail: FILE2:1: the end of the log was cut off: records 4 to 5 are not here",
		},
		"live file deleted": {
			tamper: func(t *testing.T, files []string) { require.NoError(t, os.Remove(files[2])) },
			code:   exitCut, first: "cut_tail: FILE1:3: the end of the log was cut off: records 4 to 5 are not here",
		},
		"all deleted": {
			tamper: func(t *testing.T, files []string) {
				for _, file := range files {
					require.NoError(t, os.Remove(file))
				}
			},
			code: exitCut, first: "missing_file: FILE2:1: no file of this log is here, although record 5 was written",
		},
		"written anew": {
			tamper: func(t *testing.T, files []string) {
				for _, file := range files {
					require.NoError(t, os.Remove(file))
				}
				threeFiles(t, files[2])
			},
			code: exitAltered, first: "chain: FILE2:2: this is not the record that was written with this number",
		},
		"another log": {
			tamper: func(t *testing.T, files []string) { require.NoError(t, os.Truncate(files[2], 0)) },
			status: func(s *daemon.AuditStatus) { s.File += ".other" },
			code:   exitOK, first: "ok: 3 records", note: "the running daemon writes another log, ",
		},
		"unreadable answer": {
			status: func(s *daemon.AuditStatus) { s.LastHash = "x" },
			code:   exitOK, first: "ok: 5 records", note: "the daemon's last hash can't be read; a tail",
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := alone(t)
			files := threeFiles(t, file)
			last, err := audit.Verify(t.Context(), file)
			require.NoError(t, err)
			s := daemon.Status{Audit: daemon.AuditStatus{File: file, LastSeq: last.Last, LastHash: last.LastHash}}
			if tc.status != nil {
				tc.status(&s.Audit)
			}
			serveStatus(t, func() daemon.Status { return s })
			if tc.tamper != nil {
				tc.tamper(t, files)
			}

			r := command(t, "audit", "verify")
			assert.Equal(t, tc.code, r.code)
			want := strings.NewReplacer("FILE1", files[1], "FILE2", files[2]).Replace(tc.first)
			assert.True(t, strings.HasPrefix(r.out, want), r.out)
			assert.Contains(t, r.out, tc.note)
		})
	}
}

func TestAuditUsage(t *testing.T) {
	alone(t)
	r := command(t, "audit")
	assert.Zero(t, r.code)
	assert.Contains(t, r.out, "verify")
	for _, args := range [][]string{{"audit", "nope"}, {"audit", "verify", "nope"}, {"audit", "verify", "--nope"}, {"help", "audit", "nope"}} {
		r = command(t, args...)
		assert.Equal(t, exitUsage, r.code, args)
		assert.NotEmpty(t, r.err)
	}
}

// The exit codes are in the help and in the documentation.
func TestAuditVerifyIsDocumented(t *testing.T) {
	help := command(t, "audit", "verify", "--help")
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "audit.md"))
	require.NoError(t, err)
	for _, text := range []string{help.out, string(doc)} {
		for _, want := range []string{"0", "10", "11", "12", "sluicegate audit verify"} {
			assert.Contains(t, text, want)
		}
		for kind, code := range exitCodes {
			assert.Contains(t, text, string(kind))
			assert.NotEqual(t, exitOK, code)
		}
	}
	assert.Contains(t, string(doc), "sluicegate tail")
}

func TestSameFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	assert.True(t, sameFile(file, filepath.Join(dir, "x", "..", "a")), "also when there is none")
	assert.False(t, sameFile(file, filepath.Join(dir, "b")))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	assert.False(t, sameFile(file, filepath.Join(dir, "b")))
	link := filepath.Join(dir, "b")
	if err := os.Symlink(file, link); err != nil {
		require.ErrorIs(t, err, fs.ErrPermission) // Windows wants a privilege
		return
	}
	assert.True(t, sameFile(link, file))
}
