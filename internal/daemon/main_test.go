package daemon

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits that end at once unless something is broken.
const patience = 20 * time.Second

// commands is the profile of most tests.
const commands = "claude-code/commands"

// userPaths returns the places of a user who has nothing yet. The folder's name
// leaves room for a socket, which that of t.TempDir does not.
func userPaths(t *testing.T) Paths {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	p := Paths{
		Config: filepath.Join(dir, "etc", "sluicegate.yaml"),
		Policy: filepath.Join(dir, "etc", "policy.d"),
		State:  filepath.Join(dir, "state"),
	}
	p.Audit = filepath.Join(p.State, "audit.jsonl")
	p.Control = filepath.Join(p.State, "control.sock")
	return p
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// onePolicy has one profile on any free port, with the given rules.
func onePolicy(rules ...string) string {
	return "version: 1\nproduct: claude-code\nprofiles:\n  commands:\n    listen: {port: 0}\n" + strings.Join(rules, "\n") + "\n"
}

// newOptions has default settings and a policy that allows nothing.
func newOptions(t *testing.T, rules ...string) Options {
	t.Helper()
	p := userPaths(t)
	write(t, filepath.Join(p.Policy, "claude-code.yaml"), onePolicy(rules...))
	return Options{Paths: p, Settings: defaultSettings(p), Version: "v1.2.3"}
}

// start runs a daemon until the end of the test.
func start(t *testing.T, o Options) *Daemon {
	t.Helper()
	d, err := Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, d.Shutdown(ctx, "signal"))
	})
	return d
}

// refusedBy asks a listener of the daemon for a host that no rule allows and
// returns the event's id.
func refusedBy(t *testing.T, addr, host string) string {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
	require.NoError(t, err)
	// A proxy request: the target is absolute.
	req.URL.Opaque = "http://" + host + "/"
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	return resp.Header.Get("X-Sluicegate-Event")
}

// eventually waits for a condition that only something else brings about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-ctx.Done():
			require.FailNow(t, "waited too long", what)
		}
	}
}

// hasIPv6 tells whether this host has ::1.
func hasIPv6(t *testing.T) bool {
	t.Helper()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err == nil {
		require.NoError(t, l.Close())
	}
	return err == nil
}

// takenPort is a port that something listens on, on one address only.
func takenPort(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
