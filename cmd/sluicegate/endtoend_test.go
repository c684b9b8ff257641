//go:build unix

package main_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tale is a world in use, with the lines that its audit log must have in the
// end: these, in this order, and no other.
type tale struct {
	*world
	gate  *gate
	proxy string // URL of the gate for clients
	want  []string
}

// expect adds the lines that what just happened leaves in the log, and waits
// for them, so that the order of lines is that of the steps.
func (s *tale) expect(lines ...string) []entry {
	s.t.Helper()
	s.want = append(s.want, lines...)
	all := s.await(len(s.want))
	return all[len(all)-len(lines):]
}

// secureURL and plainURL are the origins as clients name them.
func (s *tale) secureURL(path string) string {
	return fmt.Sprintf("https://dev.example.com:%d%s", s.secure.port, path)
}

func (s *tale) plainURL(path string) string {
	return fmt.Sprintf("http://plain.example.com:%d%s", s.plain.port, path)
}

// with is the tale inside a subtest.
func (s *tale) with(step func(*tale)) func(*testing.T) {
	return func(t *testing.T) {
		outer := s.t
		s.t = t
		defer func() { s.t = outer }()
		step(s)
	}
}

// TestEndToEnd is one gate from start to stop: what is allowed arrives, what is
// not is refused and explained, and the log tells exactly that.
func TestEndToEnd(t *testing.T) {
	w := newWorld(t)
	w.policy(`
version: 1
product: claude-code
profiles:
  commands:
    listen: {port: 0, unix: commands.sock}
    allow:
      - {host: dev.example.com, resolves_to: [127.0.0.1], ports: [$SECURE], id: dev}
      - {host: plain.example.com, resolves_to: [127.0.0.1], ports: [$PLAIN], id: plain}
      - {host: "*.example.com", id: all}
    deny:
      - host: paste.example.com
        id: no-paste
        why: "anybody can put text there"
`)
	w.dns.answer("inside.example.com", "10.20.0.7")
	w.dns.answer("linked.example.com", "fe80::7")

	s := &tale{world: w, gate: w.start()}
	s.proxy = "http://" + s.gate.addr(commands)
	s.expect("service.started previous=unknown")

	t.Run("curl", s.with(curlAllowed))
	t.Run("curl is refused", s.with(curlRefused))
	t.Run("curl by SOCKS", s.with(curlSOCKS))
	t.Run("curl by a Unix socket", s.with(curlUnixSocket))
	t.Run("git clone", s.with(gitClone))
	t.Run("Go client", s.with(goClient))
	t.Run("Python client", s.with(pythonClient))
	t.Run("Node client", s.with(nodeClient))
	t.Run("private destinations", s.with(privateDestinations))
	t.Run("destinations that cannot be reached", s.with(unreachableDestinations))
	t.Run("malformed", s.with(malformedRequests))
	t.Run("explain", s.with(explainEvents))

	s.gate.stop()
	s.expect("service.stopped cause=signal")
	assert.Equal(t, s.want, w.story())
	w.verifyChain()
	for _, e := range w.entries() {
		assert.Equal(t, testVersion, e.Daemon.Version)
		assert.Equal(t, s.gate.cmd.Process.Pid, e.Daemon.PID)
		if e.Event == "service.started" || e.Event == "service.stopped" {
			continue
		}
		assert.Equal(t, commands, e.Profile)
		assert.Equal(t, "claude-code", e.Product)
		assert.Contains(t, []string{"127.0.0.1", "unix"}, e.Client.Address)
		assert.Equal(t, "verified", e.Client.Attribution)
	}
	for i, line := range logLines(t, w.audit) {
		assert.Negative(t, bytes.IndexFunc(line, func(r rune) bool { return r < ' ' || r > '~' }), "line %d has bytes a terminal may obey", i+1)
	}
	// Only names that a rule allows were ever asked for. Go asks for more than
	// one type, but never for another name.
	for _, name := range w.dns.names() {
		assert.Contains(t, []string{
			"dev.example.com", "plain.example.com", "inside.example.com", "linked.example.com", "nowhere.example.com",
		}, name, "looked up although no rule allows it")
	}
}

// explainEvents asks the gate about every refusal so far.
func explainEvents(s *tale) {
	explained := 0
	for _, e := range s.entries() {
		if e.Event != "egress.denied" {
			continue
		}
		explained++
		r := s.sluicegate("explain", e.ID)
		require.Zero(s.t, r.code, r.stderr)
		assert.Contains(s.t, r.stdout, e.Reason+": ", "the reason with its meaning")
		assert.Regexp(s.t, `(?m)^mend +\S`, r.stdout)
		assert.Regexp(s.t, `(?m)^policy +sha256:[0-9a-f]{12} \(.*policy\.d\), in force$`, r.stdout)
		if e.Rule.ID == "" {
			assert.Regexp(s.t, `(?m)^rule +none: `, r.stdout)
			continue
		}
		assert.Equal(s.t, s.policyFile(), e.Rule.File)
		assert.Contains(s.t, r.stdout, fmt.Sprintf("%s (%s:%d)", e.Rule.ID, e.Rule.File, e.Rule.Line))
		if e.Rule.ID == "no-paste" {
			assert.Equal(s.t, 11, e.Rule.Line)
			assert.Regexp(s.t, `(?m)^why +anybody can put text there$`, r.stdout)
		}
	}
	assert.NotZero(s.t, explained)

	unknown := s.sluicegate("explain", "01890a5d-ac96-774b-bcce-b302099a8057")
	assert.Equal(s.t, 1, unknown.code)
	assert.Contains(s.t, unknown.stderr, "no event 01890a5d-ac96-774b-bcce-b302099a8057")
	malformed := s.sluicegate("explain", "everything")
	assert.Equal(s.t, 1, malformed.code)
	assert.Contains(s.t, malformed.stderr, "not an event id")
}
