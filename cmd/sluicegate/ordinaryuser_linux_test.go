package main_test

import (
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nobody is a user without rights who exists, or need not exist, everywhere.
const nobody = 65534

// TestOrdinaryUser does what the README promises: the program runs for an
// ordinary user with nothing set up, on the embedded policy, and serves that user
// only. As root it runs the gate as another user, so that there are two.
func TestOrdinaryUser(t *testing.T) {
	w := newWorld(t)
	skipBusyPorts(t, "18081", "18082")
	root := os.Geteuid() == 0
	as := func(*exec.Cmd) {}
	if root {
		skipClosedFolders(t, w.dir)
		for _, dir := range []string{w.dir, w.home} {
			require.NoError(t, os.Chown(dir, nobody, nobody))
		}
		as = func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
	}
	w.state = filepath.Join(w.home, ".local", "state", "sluicegate")
	w.audit = filepath.Join(w.state, "audit.jsonl")
	g := w.start(as, func(cmd *exec.Cmd) { cmd.Args = []string{binary, "run"} })
	run := func(program string, args ...string) result {
		cmd := exec.Command(program, args...)
		cmd.Env, cmd.Dir = w.env, w.home
		as(cmd)
		var out, errs journal
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		require.NotNil(t, cmd.ProcessState, "%s did not run", program)
		return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	}

	table := g.out.String()
	for _, shown := range []string{
		"claude-code/process ", "127.0.0.1:18081 ", commands + " ", "127.0.0.1:18082 ", "(embedded)", w.audit, "curl -v -x http://127.0.0.1:18082 ",
	} {
		assert.Contains(t, table, shown)
	}
	s := statusOf(t, run(binary, "status", "--json"), 0)
	assert.Equal(t, "embedded", s.Policy.Source)
	assert.Equal(t, "ok", s.Health)

	t.Run("own connection", func(t *testing.T) {
		r := run(needs(t, "curl"), "--silent", "--show-error", "--proxy", "http://127.0.0.1:18082", "https://paste.example.com/")
		assert.Equal(t, 56, r.code)
		all := w.entries()
		last := all[len(all)-1]
		assert.Equal(t, "egress.denied deny not_listed connect paste.example.com:443 http=403", last.String())
		r = run(binary, "explain", last.ID)
		assert.Zero(t, r.code, r.stderr)
		assert.Contains(t, r.stdout, "asked    CONNECT paste.example.com:443\n")
	})
	t.Run("connection of another user", func(t *testing.T) {
		if !root {
			t.Skip("only root can be two users")
		}
		// Who asks is judged before what for, so the name does not matter.
		for _, url := range []string{"https://forbidden.example.net", "http://forbidden.example.net"} {
			told, err := ask("http://127.0.0.1:18082", url)
			require.NoError(t, err)
			assert.Equal(t, 403, told.status)
			assert.Equal(t, "bad_identity", told.problem.Reason)
			e := w.find(told.event)
			assert.Equal(t, "deny", e.Decision)
			assert.Equal(t, "bad_identity", e.Reason)
			require.NotNil(t, e.Client.UID)
			assert.Zero(t, *e.Client.UID)
			assert.Equal(t, "verified", e.Client.Attribution)
		}
		assert.Empty(t, w.dns.names())
		for _, command := range [][]string{{"status"}, {"explain", w.entries()[0].ID}} {
			r := w.sluicegate(command...)
			assert.Equal(t, 1, r.code)
			assert.Empty(t, r.stdout)
			assert.Contains(t, oneLine(t, r.stderr), "runs as uid 65534")
		}
	})

	g.stop()
	w.verifyChain()
	require.NoError(t, filepath.WalkDir(w.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o027, "%s is open to others: %s", path, info.Mode())
		return nil
	}))
}

// skipBusyPorts skips the test where something else has the ports that the
// embedded policy names.
func skipBusyPorts(t *testing.T, ports ...string) {
	t.Helper()
	for _, port := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Skipf("port %s of the embedded policy is busy on this machine: %v", port, err)
		}
		require.NoError(t, l.Close())
	}
}

// skipClosedFolders skips the test where another user can't reach what is below
// the folder for temporary files.
func skipClosedFolders(t *testing.T, dir string) {
	t.Helper()
	for dir = filepath.Dir(dir); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		if info.Mode().Perm()&0o001 == 0 {
			t.Skipf("%s is closed to other users (%s)", dir, strings.TrimPrefix(info.Mode().String(), "d"))
		}
		if dir == filepath.Dir(dir) {
			return
		}
	}
}
