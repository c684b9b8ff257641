//go:build unix

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience bounds waits that end at once unless something is broken.
const patience = 30 * time.Second

// commands is the profile that the default policy of a world serves.
const commands = "claude-code/commands"

// world is what surrounds one gate: its user's folders, the DNS server it asks
// and the origins its clients want.
type world struct {
	t *testing.T

	dir    string // short, for the control socket's path
	home   string
	config string // settings file; policy.d is beside it
	state  string
	audit  string
	env    []string // of every process

	dns    *dnsServer
	ca     *authority
	secure *origin // https
	plain  *origin // http
}

// newWorld makes a world whose policy allows dev.example.com on the secure
// origin's port and plain.example.com on the plain one's.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: shortDir(t)}
	w.home = filepath.Join(w.dir, "home")
	w.config = filepath.Join(w.dir, "etc", "sluicegate.yaml")
	w.state = filepath.Join(w.dir, "state")
	w.audit = filepath.Join(w.state, "audit.jsonl")
	for _, dir := range []string{w.home, w.policyDir()} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}
	// Nothing of the person who runs the tests: no XDG folders, no proxy.
	w.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.home, "TMPDIR=" + os.TempDir(), "LC_ALL=C"}

	w.dns = newDNS(t)
	w.ca = newAuthority(t, w.dir)
	w.secure = newOrigin(t, w.ca)
	w.plain = newOrigin(t, nil)
	w.settings(fmt.Sprintf("dns: {upstreams: [\"%s\"]}\n", w.dns.addr))
	w.policy(`
version: 1
product: claude-code
profiles:
  commands:
    listen: {port: 0}
    allow:
      - {host: dev.example.com, resolves_to: [127.0.0.1], ports: [$SECURE], id: dev}
      - {host: plain.example.com, resolves_to: [127.0.0.1], ports: [$PLAIN], id: plain}
`)
	w.dns.answer("dev.example.com", "127.0.0.1")
	w.dns.answer("plain.example.com", "127.0.0.1")
	return w
}

// shortDir is like t.TempDir with a name that leaves room for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func (w *world) policyDir() string { return filepath.Join(filepath.Dir(w.config), "policy.d") }

func (w *world) policyFile() string { return filepath.Join(w.policyDir(), "claude-code.yaml") }

// settings replaces the settings file; version is added.
func (w *world) settings(text string) { write(w.t, w.config, "version: 1\n"+text) }

// policy replaces the policy. $SECURE and $PLAIN are the ports of the origins.
func (w *world) policy(text string) {
	text = strings.NewReplacer("$SECURE", strconv.Itoa(w.secure.port), "$PLAIN", strconv.Itoa(w.plain.port)).Replace(text)
	write(w.t, w.policyFile(), strings.TrimLeft(text, "\n"))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// sluicegate runs a command of the program to its end.
func (w *world) sluicegate(args ...string) result {
	w.t.Helper()
	return w.exec(binary, append(args, "--config", w.config, "--state-dir", w.state)...)
}

// exec runs any program to its end, in the world's environment.
func (w *world) exec(name string, args ...string) result {
	w.t.Helper()
	return w.execEnv(nil, name, args...)
}

func (w *world) execEnv(env []string, name string, args ...string) result {
	w.t.Helper()
	// Not the test's context: cleanups run commands too.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append(w.env, env...), w.dir, &out, &errs
	cmd.WaitDelay = patience // for the pipes, which children may hold
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(w.t, err, "%s %s", name, strings.Join(args, " "))
	}
	require.NoError(w.t, ctx.Err(), "%s %s did not end\n%s%s", name, strings.Join(args, " "), out.String(), errs.String())
	return result{code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errs.String()}
}

// needs skips a test that cannot do without a program.
func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	return path
}

// oneLine wants an error of one line from the program, and returns it without
// the program's name.
func oneLine(t *testing.T, text string) string {
	t.Helper()
	text, ended := strings.CutSuffix(text, "\n")
	assert.True(t, ended, "the last line has no end: %q", text)
	assert.NotContains(t, text, "\n")
	text, named := strings.CutPrefix(text, "sluicegate: ")
	assert.True(t, named, "the program does not say its name: %q", text)
	return text
}

// eventually waits for a condition that only something else brings about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
