//go:build unix

package main_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An investigator follows the log of a running gate, verifies it, and finds out
// that somebody cut off its end.
func TestFollowAndVerifyARunningGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	tail := exec.Command(binary, "tail", "-f", "--config", w.config, "--state-dir", w.state)
	out, errs := &journal{}, &journal{}
	tail.Env, tail.Stdout, tail.Stderr = w.env, out, errs
	require.NoError(t, tail.Start())
	eventually(t, "the record of the start", func() bool { return strings.Contains(out.String(), "service.started") })

	curl := needs(t, "curl")
	addr := g.addr(commands)
	w.exec(curl, "-sx", "http://"+addr, "https://refused.example.com/")
	eventually(t, "the refusal", func() bool { return strings.Contains(out.String(), "refused.example.com:443") })
	assert.NotContains(t, out.String(), "\x1b", "no terminal, no colours")

	r := w.sluicegate("audit", "verify")
	assert.Zero(t, r.code)
	assert.Regexp(t, `^ok: 2 records in 1 file, 1 to 2, last hash [0-9a-f]{64}\n    compared with the running daemon, which had written up to record 2\n$`, r.stdout)

	require.NoError(t, tail.Process.Signal(os.Interrupt))
	require.NoError(t, tail.Wait(), "exit code after Ctrl-C")
	assert.Empty(t, errs.String())

	// Somebody removes the refusal.
	log, err := os.ReadFile(w.audit)
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(log), "\n")
	require.NoError(t, os.Truncate(w.audit, int64(len(first)+1)))
	r = w.sluicegate("audit", "verify")
	assert.Equal(t, 11, r.code)
	assert.Contains(t, r.stdout, "cut_tail: "+w.audit+":2: the end of the log was cut off: record 2 is not here")

	g.stop()
	r = w.sluicegate("audit", "verify")
	assert.Contains(t, []int{10, 11}, r.code, "the record of the stop stands behind it; the log may have noticed in time")
	assert.Contains(t, r.stdout, "record 2 is ")
}

// "tail -f | head -1": the reader goes away, and tail ends without a word.
func TestTailIntoAPipeThatCloses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	tail := exec.Command(binary, "tail", "-f", "-n", "1", "--config", w.config, "--state-dir", w.state)
	errs := &journal{}
	tail.Env, tail.Stderr = w.env, errs
	out, err := tail.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tail.Start())
	_, err = io.ReadFull(out, make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, out.Close())

	g.signal(syscall.SIGTERM) // writes another record
	require.Zero(t, g.wait())
	require.NoError(t, tail.Wait(), "exit code 0, not a signal")
	assert.Empty(t, errs.String())
}
