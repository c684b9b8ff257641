//go:build unix

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// R-C08: a gate that was killed leaves its socket behind, and the next one
// starts. What is no socket is not deleted, and a running second gate is found:
// see TestSecondInstance and the control socket's row in TestStartFails.
func TestR_C08_StartAfterKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	gate := g.addr(commands)
	told, err := ask("http://"+gate, "https://forbidden.example.net")
	require.NoError(t, err)
	require.Equal(t, 403, told.status)
	w.tunnel(gate)
	w.await(3)

	require.NoError(t, g.cmd.Process.Kill())
	assert.Equal(t, -1, g.wait())
	socket := filepath.Join(w.state, "control.sock")
	info, err := os.Lstat(socket)
	require.NoError(t, err, "a killed gate leaves its socket behind, or this test shows nothing")
	assert.Equal(t, os.ModeSocket, info.Mode().Type())
	r := w.sluicegate("status")
	assert.Equal(t, 3, r.code, "nobody answers behind the socket")
	assert.Contains(t, oneLine(t, r.stderr), `start it with "sluicegate run"`)
	assert.Equal(t, "not_listed", w.find(told.event).Reason, "the refusal that the client saw is in the log")

	g = w.start()
	assert.Equal(t, uint64(4), g.status(0).Audit.LastSeq)
	r = w.sluicegate("explain", told.event)
	assert.Zero(t, r.code, "events of earlier runs are explained too\n%s", r.stderr)
	g.stop()
	assert.Equal(t, []string{
		"service.started previous=unknown",
		"egress.denied deny not_listed connect forbidden.example.net:443 http=403",
		w.openedLine(),
		"service.started previous=unclean",
		"service.stopped cause=signal",
	}, w.story())
	w.verifyChain()

	w.start().stop()
	assert.Equal(t, "service.started previous=clean", w.story()[5])
	w.verifyChain()
	_, err = os.Lstat(socket)
	assert.ErrorIs(t, err, os.ErrNotExist, "a gate that stops removes its socket")
}

// A record cut short by a crash of the machine is told, not hidden, and does
// not keep the gate from starting.
func TestStartAfterTornRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start().stop()
	log, err := os.ReadFile(w.audit)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(w.audit, int64(len(log)-100)))

	g := w.start()
	told, err := ask("http://"+g.addr(commands), "https://forbidden.example.net")
	require.NoError(t, err)
	assert.Equal(t, 403, told.status)
	g.stop()
	log, err = os.ReadFile(w.audit)
	require.NoError(t, err)
	assert.Contains(t, string(log), `"event":"audit.gap"`)
	assert.Contains(t, string(log), `"previous_stop":"unclean"`)
	assert.Contains(t, string(log), told.event)
}

// While the log can't be written nothing passes that can't be recorded, the
// gate says so, and it recovers by itself.
func TestLogThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	folder := filepath.Join(w.dir, "log")
	w.audit = filepath.Join(folder, "audit.jsonl")
	w.settings("dns: {upstreams: [\"" + w.dns.addr + "\"]}\naudit: {file: " + w.audit + "}\n")
	g := w.start()
	gate := g.addr(commands)
	allowed := func() int {
		conn, resp, err := dialThrough(gate, w.plainTunnel())
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		return resp.StatusCode
	}
	require.Equal(t, 200, allowed())
	w.await(3)

	require.NoError(t, os.RemoveAll(folder))
	eventually(t, "the gate to notice", func() bool { return allowed() == 503 })
	s := statusOf(t, w.sluicegate("status", "--json"), 4)
	assert.Equal(t, "degraded", s.Health)
	require.Len(t, s.Problems, 1)
	assert.Contains(t, s.Problems[0], "the audit log can not be written")
	told, err := ask("http://"+gate, "https://forbidden.example.net")
	require.NoError(t, err)
	assert.Equal(t, 503, told.status, "a refusal without its record is not sent as one")
	assert.Equal(t, "audit_unavailable", told.problem.Reason)
	assert.Empty(t, told.event)

	require.NoError(t, os.Mkdir(folder, 0o700))
	eventually(t, "the gate to recover", func() bool { return allowed() == 200 })
	assert.Equal(t, "ok", g.status(0).Health)
	log, err := os.ReadFile(w.audit)
	require.NoError(t, err)
	assert.Contains(t, string(log), `"event":"audit.gap"`, "the loss is told")
}

// plainTunnel is the target of a CONNECT to the plain origin.
func (w *world) plainTunnel() string {
	return fmt.Sprintf("https://plain.example.com:%d", w.plain.port)
}
