package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Variables by which a test that runs inside a namespace knows it, and finds the
// program its parent has built.
const (
	insideVar = "SLUICEGATE_TEST_INSIDE"
	binaryVar = "SLUICEGATE_TEST_BINARY"
)

// inNamespace runs the rest of the test in user, network and mount namespaces of
// its own: a process that is root there, with a loopback interface and no other,
// whose ports below 1024 are free and whose mounts nobody else sees. It returns
// true in there; in the process that started it, it returns false when the rest
// has run.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVar) == t.Name() {
		loopbackUp(t)
		require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		return true
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), insideVar+"="+t.Name(), binaryVar+"="+binary)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	var out journal
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Skipf("this machine gives ordinary processes no namespaces: %v", err)
	}
	err = cmd.Wait()
	t.Log(out.String())
	require.NoError(t, err, "inside the namespace")
	if strings.Contains(out.String(), "\n--- SKIP") {
		t.Skip("skipped inside the namespace")
	}
	assert.Contains(t, out.String(), "--- PASS: "+t.Name(), "the test did not run inside the namespace")
	return false
}

func loopbackUp(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	require.NoError(t, err)
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	require.NoError(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
}

// replaceFile puts text in the place of a file, for this namespace alone.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Skipf("this machine has no such file: %v", err)
	}
	file := filepath.Join(t.TempDir(), filepath.Base(path))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	require.NoError(t, unix.Mount(file, path, "", unix.MS_BIND, ""))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(path, 0)) })
}

// The C library's resolver, which most programs use, gets its answers from the
// gate when the gate is the machine's DNS server: through getent, Python and
// Node alike. A name that is not allowed does not exist, at once.
func TestSystemResolver(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	w := newWorld(t)
	w.policy(`
version: 1
product: claude-code
profiles:
  commands:
    listen: {port: 0, dns: 53}
    allow:
      - {host: dev.example.com, resolves_to: [127.0.0.1], ports: [$SECURE]}
`)
	g := w.start()
	replaceFile(t, "/etc/resolv.conf", "nameserver 127.0.0.1\n")
	// Only DNS, neither files nor what else the machine asks.
	replaceFile(t, "/etc/nsswitch.conf", "hosts: dns\n")

	for name, resolve := range map[string]func(host string) result{
		"getent": func(host string) result {
			r := w.exec(needs(t, "getent"), "hosts", host)
			r.stdout, _, _ = strings.Cut(r.stdout, " ")
			return r
		},
		"python": func(host string) result {
			return w.exec(needs(t, "python3"), "-c", `
import socket, sys
try:
    sys.stdout.write(socket.getaddrinfo(sys.argv[1], 443)[0][4][0])
except socket.gaierror as e:
    sys.exit(2 if e.errno == socket.EAI_NONAME else 'error %s' % e)`, host)
		},
		"node": func(host string) result {
			return w.exec(needs(t, "node"), "-e", `
require('dns').lookup(process.argv[1], (e, a) => {
  if (e) process.exit(e.code == 'ENOTFOUND' ? 2 : 1);
  process.stdout.write(a);
});`, host)
		},
	} {
		t.Run(name, func(t *testing.T) {
			outer := w.t
			w.t = t
			defer func() { w.t = outer }()
			assert.Equal(t, result{stdout: "127.0.0.1"}, resolve("dev.example.com"))
			denied := name + "-secret.evil.example.net"
			assert.Equal(t, 2, resolve(denied).code, "the name does not exist")
			assert.NotContains(t, w.dns.names(), denied, "the name went upstream")
			asked := 0
			for _, e := range w.entries() {
				if e.Event == "dns.denied" && e.Dest == denied {
					asked++
					assert.Equal(t, "not_listed", e.Reason)
				}
			}
			// One look-up asks for two types; more would be a client that was
			// not told clearly.
			assert.NotZero(t, asked)
			assert.LessOrEqual(t, asked, 2)
		})
	}
	g.stop()
	w.verifyChain()
}

// Observe mode lets through what it would refuse, and says so before it does;
// what the guard refuses stays refused. The namespace has no way out, so what is
// let through ends at the dial.
func TestObserveMode(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	w := newWorld(t)
	w.policy(`
version: 1
product: claude-code
profiles:
  commands:
    listen: {port: 0, dns: 0}
    mode: observe
    observe_until: 2999-01-01
    deny: [{host: paste.example.com, id: paste}]
`)
	w.dns.answer("unlisted.example.net", "1.1.1.1")
	w.dns.answer("inside.example.net", "10.0.0.7")
	s := &tale{world: w, gate: w.start()}
	s.expect("service.started previous=unknown")
	s.proxy = "http://" + s.gate.addr(commands)

	status := s.sluicegate("status")
	assert.Regexp(t, `(?m)^claude-code/commands +observe`, status.stdout)

	told, err := ask(s.proxy, "https://unlisted.example.net")
	require.NoError(t, err)
	assert.Contains(t, []int{502, 504}, told.status, "let through, and not reached")
	s.await(3)
	story := w.story()[1:]
	assert.Equal(t, "egress.observed would_deny observe connect unlisted.example.net:443", story[0])
	assert.Contains(t, story[1], "egress.closed error upstream_")
	s.want = append(s.want, story...)
	observed := w.entries()[1]
	assert.Equal(t, "not_listed", observed.Would)
	r := s.sluicegate("explain", observed.ID)
	assert.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, "not_listed")
	r = s.sluicegate("tail", "--decision", "would_deny", "--reason", "not_listed")
	assert.Contains(t, r.stdout, "unlisted.example.net:443")

	inside, err := ask(s.proxy, "https://inside.example.net")
	require.NoError(t, err)
	assert.Equal(t, "dest_private", inside.problem.Reason, "where the name leads is not relaxed")
	s.expect("egress.observed would_deny observe connect inside.example.net:443", "egress.denied deny dest_private connect inside.example.net:443 http=403")
	s.refused("https://10.0.0.7", 403, "dest_private", "egress.denied deny dest_private connect 10.0.0.7:443 http=403")
	s.refused("https://paste.example.com", 403, "deny_rule", "egress.denied deny deny_rule connect paste.example.com:443 rule=paste http=403")

	r = w.exec(needs(t, "node"), "-e", `
const { Resolver } = require('dns').promises;
const r = new Resolver(); r.setServers([process.argv[1]]);
r.resolve4('unlisted.example.net').then(a => process.stdout.write(a.join()));`, w.dnsAddr())
	assert.Equal(t, result{stdout: "1.1.1.1"}, r)
	s.expect("dns.observed would_deny observe dns unlisted.example.net:0")
	s.gate.stop()
	s.expect("service.stopped cause=signal")
	assert.Equal(t, s.want, w.story())
	w.verifyChain()
}

// overlay makes a folder appear in the place of another, which need not exist,
// for this namespace alone.
func overlay(t *testing.T, from, to string) {
	t.Helper()
	if _, err := os.Stat(to); err != nil {
		// The parent is replaced by a copy of itself that has the folder.
		parent := filepath.Dir(to)
		upper, work := filepath.Join(t.TempDir(), "u"), filepath.Join(t.TempDir(), "w")
		require.NoError(t, os.Mkdir(upper, 0o755))
		require.NoError(t, os.Mkdir(work, 0o755))
		require.NoError(t, os.Mkdir(filepath.Join(upper, filepath.Base(to)), 0o755))
		err := unix.Mount("overlay", parent, "overlay", 0, "lowerdir="+parent+",upperdir="+upper+",workdir="+work+",userxattr")
		if err != nil {
			t.Skipf("this machine has no overlay for %s: %v", parent, err)
		}
		t.Cleanup(func() { assert.NoError(t, unix.Unmount(parent, unix.MNT_DETACH)) })
	}
	require.NoError(t, unix.Mount(from, to, "", unix.MS_BIND, ""))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(to, unix.MNT_DETACH)) })
}

// R-A04: on a full disk the gate stays up, lets nothing through and says so; no
// refusal that a client was told as one is missing, and what could not be
// written is counted once there is room.
func TestR_A04_DiskFull(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	w := newWorld(t)
	folder := filepath.Join(w.dir, "log")
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, unix.Mount("tmpfs", folder, "tmpfs", 0, "size=64k,mode=0700"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(folder, unix.MNT_DETACH)) })
	w.audit = filepath.Join(folder, "audit.jsonl")
	w.settings("dns: {upstreams: [\"" + w.dns.addr + "\"]}\naudit: {file: " + w.audit + "}\n")
	g := w.start()
	gate := "http://" + g.addr(commands)

	told, unrecorded := map[string]bool{}, 0
	for range 200 {
		a, err := ask(gate, "https://forbidden.example.net")
		require.NoError(t, err)
		switch a.status {
		case 403:
			require.NotEmpty(t, a.event)
			told[a.event] = true
		case 503:
			require.Empty(t, a.event)
			unrecorded++
		default:
			require.Fail(t, "another answer", "%d", a.status)
		}
	}
	assert.NotEmpty(t, told)
	require.NotZero(t, unrecorded, "the disk did not fill up")
	s := statusOf(t, w.sluicegate("status", "--json"), 4)
	require.NotEmpty(t, s.Problems)
	assert.Contains(t, s.Problems[0], "the audit log can not be written")
	conn, resp, err := dialThrough(strings.TrimPrefix(gate, "http://"), w.plainTunnel())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	assert.Equal(t, 503, resp.StatusCode, "what can't be recorded is not let through")

	require.NoError(t, unix.Mount("", folder, "", unix.MS_REMOUNT, "size=8m"))
	eventually(t, "the gate to recover", func() bool {
		a, err := ask(gate, "https://forbidden.example.net")
		return err == nil && a.status == 403
	})
	assert.Equal(t, "ok", g.status(0).Health)
	g.stop()
	lost := 0
	for _, line := range strings.Split(strings.TrimSpace(readFile(t, w.audit)), "\n") {
		var e struct {
			Event, ID string
			Gap       struct {
				Dropped map[string]int
				Cause   string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		delete(told, e.ID)
		if e.Event == "audit.gap" {
			assert.Equal(t, "disk_full", e.Gap.Cause)
			for _, n := range e.Gap.Dropped {
				lost += n
			}
		}
	}
	assert.Empty(t, told, "refusals that clients saw and the log has not")
	assert.GreaterOrEqual(t, lost, unrecorded, "the loss is counted")
	w.verifyChain()
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}
