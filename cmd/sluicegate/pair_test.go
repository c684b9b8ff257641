//go:build unix

package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// image is a world with a policy of fixed ports, and a root for the product's
// files.
type image struct {
	*world
	root, folder, file string
	project            string
}

func newImage(t *testing.T) *image {
	t.Helper()
	i := &image{world: newWorld(t)}
	i.policy(`
version: 1
product: claude-code
profiles:
  process: {listen: {port: 4711}}
  commands: {listen: {port: 4712}}
`)
	i.root = filepath.Join(i.dir, "root")
	i.project = filepath.Join(i.dir, "project")
	for _, dir := range []string{i.root, filepath.Join(i.project, ".claude")} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	product := "etc/claude-code"
	if runtime.GOOS == "darwin" {
		product = "Library/Application Support/ClaudeCode"
	}
	i.folder = filepath.Join(i.root, product, "managed-settings.d")
	i.file = filepath.Join(i.folder, "50-sluicegate.json")
	return i
}

func (i *image) pair(args ...string) result {
	i.t.Helper()
	return i.sluicegate(append([]string{"pair", "claude-code", "--root", i.root, "--project", "project"}, args...)...)
}

// report is the part of "pair --check --json" that the tests read.
type report struct {
	Holds    bool
	Findings []struct {
		Level, Code, File, Key string
		Line                   int
	}
}

// weak are the codes of what weakens the boundary.
func (i *image) weak(wantCode int) []string {
	i.t.Helper()
	r := i.pair("--check", "--json")
	assert.Equal(i.t, wantCode, r.code, r.stderr)
	assert.Empty(i.t, r.stderr)
	var got report
	require.NoError(i.t, json.Unmarshal([]byte(r.stdout), &got))
	assert.Equal(i.t, wantCode == 0, got.Holds)
	var codes []string
	for _, f := range got.Findings {
		if f.Level == "weakens" {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// TestPair is the life of the settings file: nothing, written, holding, undermined
// and removed.
func TestPair(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	assert.Equal(t, result{stdout: "nothing to remove: there is no " + i.file + "\n"}, i.pair("--remove"))
	assert.Equal(t, []string{"not_paired"}, i.weak(1))

	printed := i.pair("--print")
	require.Zero(t, printed.code, printed.stderr)
	r := i.pair("--write")
	require.Zero(t, r.code, r.stderr)
	assert.Equal(t, "wrote "+i.file+": commands go to port 4712, the product to port 4711 (policy "+i.policyDir()+
		"); running sessions read it on reload, proxy variables when they are started again\n", r.stdout)
	text, err := os.ReadFile(i.file)
	require.NoError(t, err)
	assert.Equal(t, printed.stdout, string(text))
	assert.Equal(t, "unchanged: "+i.file+" already has these settings ("+i.policyDir()+")\n", i.pair("--write").stdout)
	assert.Empty(t, i.weak(0))

	r = i.pair("--check")
	assert.Zero(t, r.code)
	assert.Regexp(t, `^HOLDS    the managed settings lead Claude Code through the gate; commands belong on port 4712, the product on port 4711\n`, r.stdout)
	assert.Contains(t, r.stdout, "\nNOT COVERED  WebFetch ")
	assert.Contains(t, r.stdout, "\nNOT CHECKED  server-managed settings can not be read from here\n")
	assert.NotContains(t, r.stdout, "WEAKENS")

	// A project that takes a command out of the sandbox, and its own shell's hole.
	local := filepath.Join(i.project, ".claude", "settings.local.json")
	write(t, local, "{\"sandbox\": {\n  \"excludedCommands\": [\"curl \\u001b[2J\"]}, \"env\": {\"TOKEN\": \"hunter2\"}}\n")
	assert.Equal(t, []string{"excluded_commands"}, i.weak(1))
	r = i.pair("--check")
	assert.Equal(t, 1, r.code)
	assert.Regexp(t, `^WEAK     1 finding\(s\) weaken the boundary`, r.stdout)
	assert.Contains(t, r.stdout, "\nWEAKENS  sandbox.excludedCommands lists \"curl\"\nsource   "+local+":2:3 (local settings of the project)\nwhy      ")
	assert.NotContains(t, r.stdout, "hunter2")
	require.NoError(t, os.Remove(local))

	i.env = append(i.env, "ALL_PROXY=http://alice:hunter2@192.0.2.7:3128")
	r = i.pair("--check")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stdout, "\nWEAKENS  ALL_PROXY is \"http://192.0.2.7:3128\"\nsource   environment of this shell\n")
	assert.NotContains(t, r.stdout, "hunter2")
	i.env = i.env[:len(i.env)-1]

	// The policy moved on, the settings did not.
	i.policy("version: 1\nproduct: claude-code\nprofiles: {process: {listen: {port: 4711}}, commands: {listen: {port: 4713}}}\n")
	assert.Equal(t, []string{"http_port_other", "socks_port_other"}, i.weak(1))

	assert.Equal(t, result{stdout: "removed " + i.file + ": sessions no longer have to use the gate\n"}, i.pair("--remove"))
	assert.NoFileExists(t, i.file)
	assert.Equal(t, []string{"not_paired"}, i.weak(1))
}

// A file that others wrote, or that is not what it seems, is left alone.
func TestPairLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	require.NoError(t, os.MkdirAll(i.folder, 0o755))
	const foreign = `{"model": "x"}`
	write(t, i.file, foreign)
	for _, do := range []string{"--write", "--remove"} {
		r := i.pair(do)
		assert.Equal(t, 1, r.code)
		assert.Empty(t, r.stdout)
		assert.Equal(t, i.file+" has keys that sluicegate does not write: move them to another file of the folder, then try again", oneLine(t, r.stderr))
	}
	text, err := os.ReadFile(i.file)
	require.NoError(t, err)
	assert.Equal(t, foreign, string(text))

	target := filepath.Join(i.dir, "target")
	write(t, target, "{}")
	require.NoError(t, os.Remove(i.file))
	require.NoError(t, os.Symlink(target, i.file))
	for _, do := range []string{"--write", "--remove"} {
		r := i.pair(do)
		assert.Equal(t, 1, r.code)
		assert.Contains(t, oneLine(t, r.stderr), i.file+" is a symbolic link: ")
	}
	text, err = os.ReadFile(target)
	require.NoError(t, err)
	assert.Equal(t, "{}", string(text))
}

// A folder that only root may write in is told in one line, with the way out.
func TestPairWithoutPermission(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	cmd := exec.Command(binary, "pair", "claude-code", "--write", "--root", i.root, "--config", i.config)
	if os.Geteuid() == 0 {
		for _, dir := range []string{i.dir, i.home, i.root, filepath.Dir(i.config), i.policyDir()} {
			require.NoError(t, os.Chmod(dir, 0o755))
		}
		for _, file := range []string{i.config, i.policyFile()} {
			require.NoError(t, os.Chmod(file, 0o644))
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	} else {
		require.NoError(t, os.Chmod(i.root, 0o555))
		defer func() { _ = os.Chmod(i.root, 0o755) }()
	}
	var out, errs journal
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = i.env, i.dir, &out, &errs
	_ = cmd.Run()
	require.NotNil(t, cmd.ProcessState)
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Empty(t, out.String())
	assert.Equal(t, "writing "+i.file+": permission denied: run it as root (with sudo), or place the output of --print yourself", oneLine(t, errs.String()))
}

// The settings can only name a fixed port.
func TestPairNeedsFixedPorts(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	for name, tt := range map[string]struct{ profiles, want string }{
		"any port": {
			"{process: {listen: {port: 4711}}, commands: {listen: {port: 0}}}",
			"the profile claude-code/commands of the policy (" + i.policyDir() + ") has no fixed port: give it a listen.port other than 0, the only kind that Claude Code's settings can name",
		},
		"no profile": {
			"{commands: {listen: {port: 4712}}}",
			"the policy (" + i.policyDir() + ") has no profile claude-code/process: add it, with a fixed listen.port, as the shipped policy has it (sluicegate products)",
		},
	} {
		i.policy("version: 1\nproduct: claude-code\nprofiles: " + tt.profiles + "\n")
		for _, do := range []string{"--print", "--write", "--check"} {
			r := i.pair(do)
			assert.Equal(t, 1, r.code, name)
			assert.Empty(t, r.stdout, name)
			assert.Equal(t, tt.want, oneLine(t, r.stderr), name)
		}
		assert.Zero(t, i.pair("--remove").code, "removing needs no policy")
	}
}
