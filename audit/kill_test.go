package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// childEnv names the log that a child process of TestKillLosesNothing writes.
const childEnv = "SLUICEGATE_AUDIT_TEST_LOG"

// runChild records until it is killed, and prints the id of each event once it
// is acknowledged.
func runChild(path string) {
	l, err := Open(context.Background(), Options{File: path, MaxSize: 256 << 10, Sync: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}

	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				e := denied("example.com")
				e.ID = NewID()
				if err := l.Record(context.Background(), e); err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				// One write: a line is there as a whole or not.
				if _, err := os.Stdout.WriteString(e.ID + "\n"); err != nil {
					os.Exit(1)
				}
			}
		})
	}
	all.Wait()
}

// killOnce starts a child, kills it after some acknowledged events and returns
// the ids of all that it acknowledged.
func killOnce(t *testing.T, path string, after int) (ids []string) {
	t.Helper()

	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	lines := bufio.NewReader(out)
	for {
		id, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // an id without its newline was not acknowledged for sure
		}
		require.NoError(t, err)
		require.Len(t, id, 37, "the child said: %s", id)
		ids = append(ids, id[:36])
		if len(ids) == after {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	require.Error(t, cmd.Wait(), "the child was to be killed")

	return ids
}

func TestKillLosesNothing(t *testing.T) {
	const kills = 20

	path := logPath(t)
	acked := 0
	inFile := map[string]bool{}
	for i := range kills {
		ids := killOnce(t, path, 1+i*37)
		require.NotEmpty(t, ids)
		acked += len(ids)

		clear(inFile)
		for _, line := range allLines(t, path) {
			if e, err := Parse(line); err == nil {
				inFile[e.ID] = true
			}
		}
		for _, id := range ids {
			require.True(t, inFile[id], "acknowledged event %s is not in the log", id)
		}
	}

	// The next start finds the end of it, torn or not.
	l := openLog(t, Options{File: path})
	assert.Equal(t, "unclean", l.PreviousStop())
	record(t, l, denied("example.com"))
	closeLog(t, l)

	torn := 0
	for _, line := range allLines(t, path) {
		if e, err := Parse(line); err != nil {
			torn++
		} else if e.Event == AuditGap {
			assert.Equal(t, CauseKilled, e.Gap.Cause)
			assert.Positive(t, e.Gap.TornBytes)
		}
	}
	assert.LessOrEqual(t, torn, kills, "at most one torn line per kill")
	events := verify(t, path, torn)
	assert.Greater(t, len(events), acked)
}
