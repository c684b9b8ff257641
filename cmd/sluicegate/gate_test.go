//go:build unix

package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gate is a running daemon.
type gate struct {
	w        *world
	cmd      *exec.Cmd
	out, err *journal
	ended    chan struct{} // closed when the process is gone
}

// status is the part of "status --json" that the tests read.
type status struct {
	Version  string
	PID      int
	Health   string
	Problems []string
	Policy   struct{ Digest, Source string }
	Profiles []struct {
		Name      string
		Addresses []string
	}
	Audit struct {
		File    string
		LastSeq uint64 `json:"last_seq"`
	}
	Control string
}

// start runs the daemon and returns when it says that it serves. At the end of
// the test it is stopped as a service manager does, which must succeed.
func (w *world) start(options ...func(*exec.Cmd)) *gate {
	w.t.Helper()
	g := w.launch(options...)
	eventually(w.t, "the table of profiles on standard output", func() bool {
		select {
		case <-g.ended:
			require.FailNow(w.t, "the gate ended at once", "exit code %d\n%s", g.cmd.ProcessState.ExitCode(), g.err)
		default:
		}
		return strings.HasPrefix(g.out.String(), "PROFILE ")
	})
	return g
}

// launch starts the daemon's process and does not wait for it.
func (w *world) launch(options ...func(*exec.Cmd)) *gate {
	w.t.Helper()
	g := &gate{w: w, out: &journal{}, err: &journal{}, ended: make(chan struct{})}
	g.cmd = exec.Command(binary, "run", "--config", w.config, "--state-dir", w.state)
	g.cmd.Env, g.cmd.Dir, g.cmd.Stdout, g.cmd.Stderr = w.env, w.dir, g.out, g.err
	for _, option := range options {
		option(g.cmd)
	}
	require.NoError(w.t, g.cmd.Start())
	go func() {
		_ = g.cmd.Wait()
		close(g.ended)
	}()
	w.t.Cleanup(g.cleanup)
	return g
}

func (g *gate) cleanup() {
	t := g.w.t
	select {
	case <-g.ended:
	default:
		_ = g.cmd.Process.Signal(syscall.SIGTERM)
		if !g.gone() {
			_ = g.cmd.Process.Kill()
			<-g.ended
			assert.Fail(t, "the gate did not stop after SIGTERM")
		}
		assert.Zero(t, g.cmd.ProcessState.ExitCode(), "exit code after SIGTERM")
	}
	if t.Failed() {
		log, _ := os.ReadFile(g.w.audit)
		t.Logf("the gate wrote to standard error:\n%s\nand to the audit log:\n%s", g.err, log)
	}
}

// gone waits for the process to end.
func (g *gate) gone() bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-g.ended:
		return true
	case <-timer.C:
		return false
	}
}

func (g *gate) signal(s os.Signal) {
	g.w.t.Helper()
	require.NoError(g.w.t, g.cmd.Process.Signal(s))
}

// wait returns the exit code; -1 is a process that a signal killed.
func (g *gate) wait() int {
	g.w.t.Helper()
	require.True(g.w.t, g.gone(), "the gate did not end")
	return g.cmd.ProcessState.ExitCode()
}

// stop ends the gate in order.
func (g *gate) stop() {
	g.w.t.Helper()
	g.signal(syscall.SIGTERM)
	require.Zero(g.w.t, g.wait(), "exit code after SIGTERM\n%s", g.err)
}

// status asks the gate by its own command.
func (g *gate) status(wantCode int) status {
	g.w.t.Helper()
	return statusOf(g.w.t, g.w.sluicegate("status", "--json"), wantCode)
}

func statusOf(t *testing.T, r result, wantCode int) status {
	t.Helper()
	require.Equal(t, wantCode, r.code, "exit code of status\n%s%s", r.stdout, r.stderr)
	var s status
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &s))
	return s
}

// addr is the IPv4 address of a profile's listener.
func (g *gate) addr(profile string) string {
	g.w.t.Helper()
	for _, p := range g.status(0).Profiles {
		if p.Name == profile {
			require.NotEmpty(g.w.t, p.Addresses)
			return p.Addresses[0]
		}
	}
	require.FailNow(g.w.t, "no such profile", profile)
	return ""
}

// journal is output that can be read while it is written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}
