//go:build unix

package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A policy of the world with these hosts, each at the plain origin.
func hosts(names ...string) string {
	var b strings.Builder
	b.WriteString("version: 1\nproduct: claude-code\nprofiles:\n  commands:\n    listen: {port: 0}\n    allow:\n")
	for _, n := range names {
		b.WriteString("      - {host: " + n + ", resolves_to: [127.0.0.1], ports: [$PLAIN]}\n")
	}
	return b.String()
}

// reaches asks for a host at the plain origin and returns the status.
func (w *world) reaches(gate, host string) int {
	w.t.Helper()
	conn, resp, err := dialThrough(gate, "https://"+host+":"+strconv.Itoa(w.plain.port))
	require.NoError(w.t, err)
	_ = resp.Body.Close()
	_ = conn.Close()
	return resp.StatusCode
}

// R-U09: what is saved takes effect, and check says the same as the gate.
func TestR_U09_SavedPolicyTakesEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(hosts("one.example.com"))
	w.dns.answer("one.example.com", "127.0.0.1")
	w.dns.answer("two.example.com", "127.0.0.1")
	g := w.start()
	addr := g.addr(commands)
	require.Equal(t, http.StatusOK, w.reaches(addr, "one.example.com"))
	require.Equal(t, http.StatusForbidden, w.reaches(addr, "two.example.com"))

	started := time.Now()
	w.policy(hosts("one.example.com", "two.example.com"))
	eventually(t, "the saved policy", func() bool { return w.reaches(addr, "two.example.com") == http.StatusOK })
	t.Logf("in force after %s", time.Since(started).Round(time.Millisecond))
	r := w.sluicegate("check", "two.example.com:"+strconv.Itoa(w.plain.port), "-p", commands)
	require.Zero(t, r.code, r.stdout)
	assert.Contains(t, r.stdout, w.policyFile()+":8")

	// By command it is in force when the command returns.
	w.policy(hosts("two.example.com"))
	r = w.sluicegate("policy", "reload")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, http.StatusForbidden, w.reaches(addr, "one.example.com"))

	// By SIGHUP.
	w.policy(hosts("one.example.com"))
	g.signal(syscall.SIGHUP)
	eventually(t, "the load by signal", func() bool { return w.reaches(addr, "one.example.com") == http.StatusOK })
	g.stop()
	w.verifyChain()
}

// R-C02, R-U06: a policy with faults changes nothing and is told everywhere.
func TestR_U06_RejectedPolicyIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(hosts("one.example.com"))
	w.dns.answer("one.example.com", "127.0.0.1")
	g := w.start()
	addr := g.addr(commands)
	good := g.status(0).Policy.Digest

	w.policy(strings.Replace(hosts("one.example.com"), "allow:", "allowd:", 1))
	r := w.sluicegate("policy", "reload")
	require.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, w.policyFile()+":6:5: profiles.commands.allowd: unknown key (did you mean \"allow\"?)")
	require.Equal(t, http.StatusOK, w.reaches(addr, "one.example.com"), "the last good policy stays")
	s := g.status(4)
	assert.Equal(t, "degraded", s.Health)
	assert.Equal(t, good, s.Policy.Digest)
	assert.Contains(t, w.sluicegate("status").stdout, "did you mean \"allow\"?")

	// It stays after a restart too.
	g.stop()
	g = w.start()
	addr = statusOf(t, w.sluicegate("status", "--json"), 4).Profiles[0].Addresses[0]
	require.Equal(t, http.StatusOK, w.reaches(addr, "one.example.com"))

	// A good one clears it.
	w.policy(hosts("one.example.com", "two.example.com"))
	require.Zero(t, w.sluicegate("policy", "reload").code)
	g.status(0)
	g.stop()

	var told []string
	for _, e := range w.entries() {
		if strings.HasPrefix(e.Event, "policy.") {
			told = append(told, e.Event)
		}
	}
	assert.Equal(t, []string{"policy.rejected", "policy.rejected", "policy.reloaded"}, told)
	w.verifyChain()
}

// Without any good policy the gate runs and refuses everything; the listeners
// open with the first good one.
func TestBrokenPolicyAtTheFirstStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy("version: 1\nproduct: [\n")
	g := w.launch()
	eventually(t, "status", func() bool { return w.sluicegate("status").code == 4 })
	eventually(t, "what is said at the start", func() bool { return strings.Contains(g.out.String(), "DEGRADED") })
	w.policy(hosts("one.example.com"))
	w.dns.answer("one.example.com", "127.0.0.1")
	require.Zero(t, w.sluicegate("policy", "reload").code)
	require.Equal(t, http.StatusOK, w.reaches(g.addr(commands), "one.example.com"))
	g.stop()
}

// A link that leads nowhere must not pass for a missing policy, which would
// bring the embedded one.
func TestPolicyThatLeadsNowhere(t *testing.T) {
	cases := map[string]func(t *testing.T, w *world){
		"file": func(t *testing.T, w *world) {
			require.NoError(t, os.Symlink(filepath.Join(w.dir, "none"), filepath.Join(w.policyDir(), "more.yaml")))
		},
		"folder": func(t *testing.T, w *world) {
			require.NoError(t, os.RemoveAll(w.policyDir()))
			require.NoError(t, os.Symlink(filepath.Join(w.dir, "none"), w.policyDir()))
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			prepare(t, w)
			g := w.launch()
			eventually(t, "status", func() bool { return w.sluicegate("status").code == 4 })
			s := g.status(4)
			assert.Empty(t, s.Policy.Digest)
			assert.Empty(t, s.Profiles, "nothing is served")
			assert.Contains(t, w.sluicegate("status").stdout, "does not exist: mend or remove the link")
			g.stop()
		})
	}
}

// R-C03: a live tunnel whose rule is gone ends with the reason revoked, another
// one carries on.
func TestR_C03_RevokedTunnelsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	addr := g.addr(commands)
	kept := w.transfer(addr)
	lost, resp, err := dialThrough(addr, "https://dev.example.com:"+strconv.Itoa(w.secure.port))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)

	w.policy(hosts("plain.example.com"))
	_, err = io.ReadAll(lost)
	require.NoError(t, err, "the tunnel ends in order")
	_ = lost.Close()
	close(w.plain.slow)
	rest, err := kept.rest()
	require.NoError(t, err)
	assert.Equal(t, secondHalf, rest, "the other tunnel was not touched")
	eventually(t, "both ends in the log", func() bool {
		return strings.Count(strings.Join(w.story(), "\n"), "egress.closed") == 2
	})
	assert.Contains(t, strings.Join(w.story(), "\n"), "end=gate/revoked")
	g.stop()
}

// A new profile's listener opens at once; a removed one's stays and refuses.
func TestProfilesComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(hosts("one.example.com"))
	w.dns.answer("one.example.com", "127.0.0.1")
	g := w.start()
	addr := g.addr(commands)
	other := filepath.Join(w.policyDir(), "other.yaml")
	write(t, other, "version: 1\nproduct: other\nprofiles: {commands: {listen: {port: 0}}}\n")
	require.Zero(t, w.sluicegate("policy", "reload").code)
	a, err := ask(g.addr("other/commands"), "https://one.example.com:"+strconv.Itoa(w.plain.port))
	require.NoError(t, err)
	assert.Equal(t, "not_listed", a.problem.Reason)

	require.NoError(t, os.Remove(w.policyFile()))
	require.Zero(t, w.sluicegate("policy", "reload").code)
	a, err = ask(addr, "https://one.example.com:"+strconv.Itoa(w.plain.port))
	require.NoError(t, err)
	assert.Equal(t, "unknown_profile", a.problem.Reason)
	g.stop()
}

// A profile that gets a Unix socket serves there at once; another name or other
// permissions need a restart, which status says.
func TestUnixSocketAtReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const policy = "version: 1\nproduct: claude-code\nprofiles:\n  commands:\n    listen: {port: 0%s}\n"
	w.policy(fmt.Sprintf(policy, ""))
	g := w.start()
	w.policy(fmt.Sprintf(policy, ", unix: a.sock"))
	require.Zero(t, w.sluicegate("policy", "reload").code)
	refused := func() string {
		conn, err := net.Dial("unix", filepath.Join(w.state, "a.sock"))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "CONNECT forbidden.example.net:443 HTTP/1.1\r\n\r\n")
		require.NoError(t, err)
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		return string(answer)
	}
	assert.Contains(t, refused(), " 403 Blocked by egress policy (not_listed) ")

	w.policy(fmt.Sprintf(policy, ", unix: b.sock"))
	require.Zero(t, w.sluicegate("policy", "reload").code)
	s := statusOf(t, w.sluicegate("status", "--json"), 4)
	require.Len(t, s.Problems, 1)
	assert.Contains(t, s.Problems[0], "a.sock")
	// Another profile does not get a socket that serves one already.
	w.policy(fmt.Sprintf(policy, "") + "  process:\n    listen: {port: 0, unix: a.sock}\n")
	require.Zero(t, w.sluicegate("policy", "reload").code)
	s = statusOf(t, w.sluicegate("status", "--json"), 4)
	require.NotEmpty(t, s.Problems)
	assert.Contains(t, s.Problems[0], "it stays the socket of claude-code/commands until a restart")
	assert.Contains(t, refused(), "refused for claude-code/commands")
	g.stop()
	assert.NoFileExists(t, filepath.Join(w.state, "a.sock"))
}
