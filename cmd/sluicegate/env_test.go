//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fetchVariable makes the test binary a client: Go reads the proxy variables of a
// process once, so each set needs a process of its own.
const fetchVariable = "SLUICEGATE_TEST_FETCH"

// fetch prints what is at a URL, as Go's default client gets it.
func fetch(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(os.Stdout, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fail(fmt.Errorf("status %d", resp.StatusCode))
	}
	return 0
}

// told is a tale whose programs get their environment from "sluicegate env",
// through a real shell.
type told struct {
	*tale
	file string
}

func newTold(t *testing.T, flags ...string) *told {
	t.Helper()
	w := newWorld(t)
	s := &told{tale: &tale{world: w, gate: w.start()}, file: filepath.Join(w.dir, "env.sh")}
	s.proxy = "http://" + s.gate.addr(commands)
	s.expect("service.started previous=unknown")
	r := w.sluicegate(append([]string{"env", "--profile", commands}, flags...)...)
	require.Zero(t, r.code, r.stderr)
	assert.Empty(t, r.stderr)
	write(t, s.file, r.stdout)
	return s
}

// run runs a program in a shell that has read the variables.
func (s *told) run(args ...string) result {
	s.t.Helper()
	return s.exec(needs(s.t, "sh"), append([]string{"-c", `. "$0" && exec "$@"`, s.file}, args...)...)
}

// variables is the environment of a program in that shell.
func (s *told) variables() map[string]string {
	s.t.Helper()
	vars := map[string]string{}
	for line := range strings.Lines(s.run("env").stdout) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		vars[name] = value
	}
	return vars
}

// A client that believes what "env" prints reaches what the policy allows through
// the gate, reaches loopback directly, and asks the gate, which refuses and
// records it, for metadata services and private addresses: the list of what
// bypasses the gate is a hole if it holds more than loopback.
func TestR_U03_GeneratedNoProxy(t *testing.T) {
	t.Parallel()
	const python = `
import sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:
        sys.stdout.write(answer.read().decode())
except OSError as e:
    sys.exit(str(e))
`
	clients := map[string]func(s *told, url string) result{
		"curl": func(s *told, url string) result {
			return s.run(needs(s.t, "curl"), "--silent", "--show-error", "--fail", "--max-time", "20", url)
		},
		"Python": func(s *told, url string) result { return s.run(needs(s.t, "python3"), "-c", python, url) },
		"Go": func(s *told, url string) result {
			self, err := os.Executable()
			require.NoError(s.t, err)
			return s.run("env", fetchVariable+"="+url, self)
		},
	}
	for name, get := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTold(t)
			assert.Equal(t, result{stdout: greeting}, get(s, s.plainURL("/hello")), "allowed")
			s.expect(fmt.Sprintf("egress.closed allow rule http plain.example.com:%d rule=plain http=200 end=orderly", s.plain.port))

			for _, host := range []string{"127.0.0.1", "localhost"} {
				assert.Equal(t, result{stdout: greeting}, get(s, fmt.Sprintf("http://%s:%d/hello", host, s.plain.port)), host)
			}

			for host, reason := range map[string]string{"169.254.169.254": "dest_metadata", "10.0.0.1": "dest_private", "192.168.0.1": "dest_private"} {
				assert.NotZero(t, get(s, "http://"+host+"/latest/").code, host)
				s.expect("egress.denied deny " + reason + " http " + host + ":80 http=403")
			}
			s.gate.stop()
			s.expect("service.stopped cause=signal")
			assert.Equal(t, s.want, s.story(), "loopback was not asked for, and nothing else happened")
		})
	}

	// Node has no client that reads the variables, but its programs parse them.
	t.Run("Node", func(t *testing.T) {
		t.Parallel()
		s := newTold(t)
		const script = `
const names = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY'];
for (const n of names.concat(names.map(n => n.toLowerCase()))) {
  const u = new URL(process.env[n]);
  console.log(n, u.protocol, u.hostname, u.port, u.pathname, u.username + u.password);
}
for (const n of ['NO_PROXY', 'no_proxy']) console.log(n, JSON.stringify(process.env[n].split(',')));
`
		_, port, err := net.SplitHostPort(s.gate.addr(commands))
		require.NoError(t, err)
		var want strings.Builder
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
			_, _ = fmt.Fprintf(&want, "%s http: 127.0.0.1 %s / \n", name, port)
		}
		for _, name := range []string{"NO_PROXY", "no_proxy"} {
			_, _ = fmt.Fprintf(&want, "%s [\"localhost\",\"127.0.0.1\",\"::1\"]\n", name)
		}
		assert.Equal(t, result{stdout: want.String()}, s.run(needs(t, "node"), "-e", script))
	})
}

// A SOCKS URL breaks clients at their start, so it is there only when asked for,
// and then with names left to the gate.
func TestR_U04_AllProxy(t *testing.T) {
	t.Parallel()
	plain := newTold(t)
	for name, value := range plain.variables() {
		assert.NotContains(t, strings.ToLower(value), "socks", name)
	}
	addr := plain.gate.addr(commands)
	assert.Equal(t, "http://"+addr, plain.variables()["ALL_PROXY"])
	assert.Equal(t, "http://"+addr, plain.variables()["all_proxy"])
	t.Run("Python", plain.with(func(s *tale) {
		python := needs(s.t, "python3")
		if s.exec(python, "-c", "import requests").code != 0 {
			s.t.Skip("Python's requests is not installed")
		}
		const script = "import requests, sys; sys.stdout.write(requests.get(sys.argv[1], timeout=20).text)"
		r := plain.run(python, "-c", script, s.plainURL("/hello"))
		assert.Equal(s.t, greeting, r.stdout, r.stderr)
		s.expect(fmt.Sprintf("egress.closed allow rule http plain.example.com:%d rule=plain http=200 end=orderly", s.plain.port))
	}))

	socks := newTold(t, "--socks")
	vars := socks.variables()
	addr = socks.gate.addr(commands)
	for _, name := range []string{"ALL_PROXY", "all_proxy"} {
		assert.Equal(t, "socks5h://"+addr, vars[name])
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		assert.Equal(t, "http://"+addr, vars[name])
	}
}

// "localhost" is ::1 for some clients: the variables have a number, and a client
// that is told the name reaches the gate all the same.
func TestR_U10_LoopbackByNumber(t *testing.T) {
	t.Parallel()
	s := newTold(t, "--java")
	_, port, err := net.SplitHostPort(s.gate.addr(commands))
	require.NoError(t, err)
	for name, value := range s.variables() {
		if strings.HasSuffix(strings.ToUpper(name), "_PROXY") && strings.ToUpper(name) != "NO_PROXY" {
			assert.Equal(t, "http://127.0.0.1:"+port, value, name)
		}
	}
	assert.Contains(t, s.variables()["JAVA_TOOL_OPTIONS"], "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort="+port+" ")

	curl := needs(t, "curl")
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		if l, err := net.Listen("tcp", host+":0"); err != nil {
			t.Logf("%s is not there: %v", host, err)
			continue
		} else {
			require.NoError(t, l.Close())
		}
		r := s.exec(curl, "--silent", "--show-error", "--max-time", "20", "--proxy", "http://"+host+":"+port, s.plainURL("/hello"))
		assert.Equal(t, result{stdout: greeting}, r, host)
		s.expect(fmt.Sprintf("egress.closed allow rule http plain.example.com:%d rule=plain http=200 end=orderly", s.plain.port))
	}
}

// A JVM reads none of the variables but its own.
func TestEnvForJava(t *testing.T) {
	t.Parallel()
	java := needs(t, "java")
	s := newTold(t, "--java")
	source := filepath.Join(s.dir, "Fetch.java")
	write(t, source, `
public class Fetch {
  public static void main(String[] args) throws Exception {
    var c = (java.net.HttpURLConnection) new java.net.URL(args[0]).openConnection();
    System.out.print(c.getResponseCode());
  }
}
`)
	fetch := func(url string) string {
		r := s.run(java, source, url)
		require.Zero(t, r.code, r.stderr)
		return r.stdout
	}
	assert.Equal(t, "200", fetch(s.plainURL("/hello")))
	s.expect(fmt.Sprintf("egress.closed allow rule http plain.example.com:%d rule=plain http=200 end=orderly", s.plain.port))
	assert.Equal(t, "200", fetch(fmt.Sprintf("http://127.0.0.1:%d/hello", s.plain.port)))
	assert.Equal(t, "403", fetch("http://169.254.169.254/"))
	s.expect("egress.denied deny dest_metadata http 169.254.169.254:80 http=403")
}

// The port 0 has its number from the running gate alone; a fixed one is known
// without it.
func TestEnvWithoutGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.sluicegate("env", "--profile", commands)
	assert.Equal(t, 3, r.code)
	assert.Empty(t, r.stdout)
	assert.Equal(t, "claude-code/commands listens on any free port and no daemon answers to say which: "+
		`start it with "sluicegate run", or give the profile a fixed listen.port`, oneLine(t, r.stderr))

	w.policy("version: 1\nproduct: claude-code\nprofiles: {commands: {listen: {port: 4711}}}\n")
	r = w.sluicegate("env", "--profile", commands, "--shell", "json")
	require.Zero(t, r.code, r.stderr)
	var vars map[string]string
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &vars))
	assert.Equal(t, "http://127.0.0.1:4711", vars["HTTPS_PROXY"])
	assert.Len(t, vars, 8)

	r = w.sluicegate("env", "--profile", "claude-code/process")
	assert.Equal(t, 2, r.code)
	assert.Equal(t, `there is no profile "claude-code/process": the policy has claude-code/commands`, oneLine(t, r.stderr))
}

// What runs counts, not what a changed file says.
func TestEnvOfTheRunningGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	addr := w.start().addr(commands)
	write(t, w.policyFile(), "version: 7\n")
	r := w.sluicegate("env", "--profile", commands)
	require.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, "export HTTP_PROXY='http://"+addr+"'\n")
	r = w.sluicegate("env", "--profile", "claude-code/process")
	assert.Equal(t, 2, r.code)
	assert.Equal(t, `there is no profile "claude-code/process": the running gate has claude-code/commands`, oneLine(t, r.stderr))
}

// A daemon that answers nonsense is no reason to guess: the policy may say another
// port than is in force.
func TestEnvOfStrangeGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy("version: 1\nproduct: claude-code\nprofiles: {commands: {listen: {port: 4711}}}\n")
	require.NoError(t, os.MkdirAll(w.state, 0o700))
	l, err := net.Listen("unix", filepath.Join(w.state, "control.sock"))
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	require.NoError(t, s.Listener.Close())
	s.Listener = l
	s.Start()
	defer s.Close()
	r := w.sluicegate("env", "--profile", commands)
	assert.Equal(t, 1, r.code)
	assert.Empty(t, r.stdout)
	oneLine(t, r.stderr)
}

// Each shell that is installed reads its form of the variables as they are meant.
func TestEnvOfShells(t *testing.T) {
	t.Parallel()
	s := newTold(t)
	assert.NotContains(t, s.variables(), "JAVA_TOOL_OPTIONS", "not asked for")
	r := s.sluicegate("env", "--profile", commands, "--java", "--shell", "json")
	require.Zero(t, r.code, r.stderr)
	var vars map[string]string
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &vars))
	for name, shell := range map[string]struct{ flag, program, source string }{
		"sh":   {"sh", "sh", `. "$FILE"; printenv JAVA_TOOL_OPTIONS no_proxy`},
		"bash": {"sh", "bash", `. "$FILE"; printenv JAVA_TOOL_OPTIONS no_proxy`},
		"zsh":  {"sh", "zsh", `. "$FILE"; printenv JAVA_TOOL_OPTIONS no_proxy`},
		"fish": {"fish", "fish", `source $FILE; printenv JAVA_TOOL_OPTIONS no_proxy`},
		"pwsh": {"powershell", "pwsh", `Invoke-Expression (Get-Content -Raw $env:FILE); printenv JAVA_TOOL_OPTIONS no_proxy`},
	} {
		t.Run(name, func(t *testing.T) {
			program := needs(t, shell.program)
			r := s.sluicegate("env", "--profile", commands, "--java", "--shell", shell.flag)
			require.Zero(t, r.code, r.stderr)
			file := filepath.Join(t.TempDir(), "vars.ps1")
			write(t, file, r.stdout)
			got := s.execEnv([]string{"FILE=" + file}, program, "-c", shell.source)
			assert.Equal(t, vars["JAVA_TOOL_OPTIONS"]+"\n"+vars["no_proxy"]+"\n", got.stdout, got.stderr)
		})
	}
}
