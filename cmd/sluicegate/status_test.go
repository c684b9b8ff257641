//go:build unix

package main_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An empty policy folder denies everything: the gate runs, serves nobody and
// says that this is not as it should be.
func TestEmptyPolicyFolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, os.Remove(w.policyFile()))
	g := w.start()
	assert.Contains(t, g.out.String(), "The policy has no profile, so nothing is served.")
	assert.NotContains(t, g.out.String(), "curl", "there is nothing to try")

	s := g.status(4)
	assert.Equal(t, "degraded", s.Health)
	assert.Equal(t, []string{"the policy has no profile, so nothing is served"}, s.Problems)
	assert.Empty(t, s.Profiles)
	assert.Equal(t, w.policyDir(), s.Policy.Source, "the embedded policy does not step in")

	r := w.sluicegate("status")
	assert.Equal(t, 4, r.code)
	assert.Empty(t, r.stderr, "the reason is part of the answer")
	assert.Regexp(t, `(?m)^health +degraded\n +the policy has no profile, so nothing is served$`, r.stdout)

	g.stop()
	for _, e := range w.entries() {
		assert.Empty(t, e.Service.Listeners)
	}
}

// The status of a sound gate, and where it says that it listens, is what the log
// says.
func TestStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	s := g.status(0)
	assert.Equal(t, "ok", s.Health)
	assert.Empty(t, s.Problems)
	assert.Equal(t, testVersion, s.Version)
	assert.Equal(t, g.cmd.Process.Pid, s.PID)
	assert.Equal(t, w.audit, s.Audit.File)
	assert.Equal(t, uint64(1), s.Audit.LastSeq)
	var listeners []string
	for _, l := range w.entries()[0].Service.Listeners {
		assert.Equal(t, commands, l.Profile)
		listeners = append(listeners, l.Address)
	}
	require.Len(t, s.Profiles, 1)
	assert.Equal(t, listeners, s.Profiles[0].Addresses)

	r := w.sluicegate("status")
	assert.Zero(t, r.code)
	for _, shown := range append(listeners, "health   ok", w.audit+", record 1, 0 dropped", commands) {
		assert.Contains(t, r.stdout, shown)
	}
	for _, shown := range append(listeners, w.audit, commands) {
		assert.Contains(t, g.out.String(), shown, "the table at the start")
	}
	assert.Contains(t, g.out.String(), "curl -v -x http://"+listeners[0]+" https://example.com/")
}
