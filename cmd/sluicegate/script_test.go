//go:build unix

package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestScripts runs testdata/script: what the commands print and how they end,
// without a daemon. In a script "exits CODE sluicegate …" runs a command and wants
// that exit code. HOME and XDG_STATE_HOME are the script's own; put settings into
// $ETC.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		// A daemon that starts although it must not would run for ever.
		Deadline:            time.Now().Add(2 * patience),
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			// The script's folder has a long name, and a socket's must be short.
			state, err := os.MkdirTemp("", "sg")
			if err != nil {
				return err
			}
			env.Defer(func() { _ = os.RemoveAll(state) })
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", home)
			env.Setenv("ETC", filepath.Join(home, ".config", "sluicegate"))
			env.Setenv("XDG_STATE_HOME", state)
			return os.MkdirAll(env.Getenv("ETC"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits is "exits CODE program args…".
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	default:
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// A command that is added is in the help, and its help shows how it is used.
func TestHelpOfEveryCommand(t *testing.T) {
	w := newWorld(t)
	top := w.exec(binary, "--help")
	assert.Equal(t, top, w.exec(binary), "without a command the program shows its help")
	assert.GreaterOrEqual(t, checkHelp(t, w), 5, "the list of commands was not read as it stands:\n%s", top.stdout)
}

// checkHelp looks at the help of the command that words name, and of those below
// it; it returns how many have an example.
func checkHelp(t *testing.T, w *world, words ...string) (documented int) {
	t.Helper()
	help := w.exec(binary, append(words, "--help")...)
	require.Zero(t, help.code, words)
	assert.Empty(t, help.stderr, words)
	_, list, above := strings.Cut(help.stdout, "\nAvailable Commands:\n")
	if !above {
		_, example, _ := strings.Cut(help.stdout, "\nExamples:\n")
		assert.True(t, strings.HasPrefix(example, "  sluicegate "+strings.Join(words, " ")), "%s has no example:\n%s", words, help.stdout)
		return 1
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.SplitSeq(list, "\n") {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name != "help" {
			documented += checkHelp(t, w, append(slices.Clone(words), name)...)
		}
	}
	return documented
}
