package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// srtVar names the program srt of sandbox-runtime where it is not on the path.
const srtVar = "SLUICEGATE_TEST_SRT"

// sandbox is the sandbox that Claude Code runs commands in, with the settings
// that pairing gives it.
type sandbox struct {
	*tale
	srt, settings string
}

// newSandbox pairs a sandbox with a gate, as an administrator does.
func newSandbox(s *tale) *sandbox {
	s.t.Helper()
	srt := os.Getenv(srtVar)
	if srt == "" {
		srt = needs(s.t, "srt")
	}
	for _, program := range []string{"bwrap", "socat"} {
		needs(s.t, program)
	}
	written := s.sluicegate("pair", "claude-code", "--print")
	require.Zero(s.t, written.code, written.stderr)
	var paired struct {
		Sandbox struct {
			Network struct{ HTTPProxyPort, SOCKSProxyPort int }
		}
	}
	require.NoError(s.t, json.Unmarshal([]byte(written.stdout), &paired))
	require.NotZero(s.t, paired.Sandbox.Network.HTTPProxyPort)
	settings, err := json.Marshal(map[string]any{
		"network": map[string]any{
			"allowedDomains": []string{}, "deniedDomains": []string{},
			"httpProxyPort": paired.Sandbox.Network.HTTPProxyPort, "socksProxyPort": paired.Sandbox.Network.SOCKSProxyPort,
		},
		"filesystem": map[string]any{"denyRead": []string{}, "allowWrite": []string{s.home}, "denyWrite": []string{}},
	})
	require.NoError(s.t, err)
	b := &sandbox{tale: s, srt: srt, settings: filepath.Join(s.dir, "srt.json")}
	write(s.t, b.settings, string(settings))
	if r := b.run("true"); r.code != 0 {
		s.t.Skipf("sandbox-runtime does not run on this machine: %s%s", r.stdout, r.stderr)
	}
	return b
}

// run runs a shell command inside the sandbox.
func (b *sandbox) run(command string) result {
	b.t.Helper()
	return b.execEnv([]string{"CA=" + b.ca.file, "SSL_CERT_FILE=" + b.ca.file, "NODE_EXTRA_CA_CERTS=" + b.ca.file, "GIT_SSL_CAINFO=" + b.ca.file},
		b.srt, "--settings", b.settings, "bash", "-c", command)
}

// inSandbox are the clients that run inside, each wanting a URL at its end.
func inSandbox() map[string]string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	return map[string]string{
		"curl":          `curl --silent --show-error --cacert "$CA" --max-time 20`,
		"curl by SOCKS": `curl --silent --show-error --cacert "$CA" --max-time 20 --proxy "$FTP_PROXY"`,
		"python":        "python3 -c " + quote(pythonFetch),
		"node":          `PROXY="$HTTPS_PROXY" node -e ` + quote(nodeFetch),
	}
}

// TestSandboxRuntime is the mission's first sentence with the real sandbox: what
// it starts can only leave through the gate.
func TestSandboxRuntime(t *testing.T) {
	w := newWorld(t)
	ports := freePorts(t, 2)
	w.policy(fmt.Sprintf(`
version: 1
product: claude-code
profiles:
  process:
    listen: {port: %d}
  commands:
    listen: {port: %d}
    allow:
      - {host: dev.example.com, resolves_to: [127.0.0.1], ports: [$SECURE], id: dev}
`, ports[0], ports[1]))
	s := &tale{world: w, gate: w.start()}
	s.proxy = "http://" + s.gate.addr(commands)
	s.expect("service.started previous=unknown")
	b := newSandbox(s)

	for name, command := range inSandbox() {
		t.Run(name, s.with(func(s *tale) {
			program, _, _ := strings.Cut(strings.TrimPrefix(command, `PROXY="$HTTPS_PROXY" `), " ")
			needs(s.t, program)
			proto := "connect"
			if name == "curl by SOCKS" {
				proto = "socks5"
			}
			r := b.run(command + " " + s.secureURL("/hello"))
			assert.Equal(s.t, result{stdout: greeting}, r)
			line := fmt.Sprintf("allow rule %s dev.example.com:%d rule=dev", proto, s.secure.port)
			all := s.expect("egress.opened "+line, "egress.closed "+line+closedBy(proto))
			assert.Equal(s.t, commands, all[0].Profile)

			r = b.run(command + " " + "https://forbidden.example.net/")
			assert.NotZero(s.t, r.code)
			status := " http=403"
			if proto == "socks5" {
				status = ""
			}
			denied := s.expect("egress.denied deny not_listed " + proto + " forbidden.example.net:443" + status)
			assert.Equal(s.t, commands, denied[0].Profile)
			switch name {
			case "python", "node":
				assert.Contains(s.t, r.stderr, "Blocked by egress policy (not_listed) "+denied[0].ID)
			case "curl":
				assert.Contains(s.t, r.stderr, "403")
			default:
				assert.Contains(s.t, r.stderr, "(2)")
			}
		}))
	}
	t.Run("git", s.with(func(s *tale) {
		repo := newRepository(s)
		before, clone := s.secure.conns.Load(), filepath.Join(s.home, "clone")
		r := b.run("git -c http.maxRequests=1 clone --quiet " + s.secureURL("/git/project.git") + " " + clone)
		require.Zero(s.t, r.code, r.stderr)
		got, err := os.ReadFile(filepath.Join(clone, "file.txt"))
		require.NoError(s.t, err)
		assert.Equal(s.t, repo.content, string(got))
		for range s.secure.conns.Load() - before {
			s.expectTunnel()
		}
		r = b.run("git ls-remote https://forbidden.example.net/x.git")
		assert.NotZero(s.t, r.code)
		assert.Contains(s.t, r.stderr, "403")
		s.expect("egress.denied deny not_listed connect forbidden.example.net:443 http=403")
	}))
	t.Run("around the gate", s.with(func(s *tale) {
		// The address of the origin itself, of a name, and of the gate's other
		// listener: there is no way out but the two bridges.
		for _, url := range []string{
			s.secureURL("/hello"), fmt.Sprintf("https://127.0.0.1:%d/hello", s.secure.port), "http://192.0.2.1/",
			fmt.Sprintf("http://127.0.0.1:%d/", ports[0]),
		} {
			r := b.run("curl --silent --show-error --insecure --noproxy '*' --max-time 10 " + url)
			assert.NotZero(s.t, r.code, url)
			assert.Empty(s.t, r.stdout, url)
		}
	}))
	s.gate.stop()
	s.expect("service.stopped cause=signal")
	assert.Equal(t, s.want, w.story(), "nothing but that was recorded")
	w.verifyChain()

	t.Run("gate stopped", s.with(func(s *tale) {
		for _, command := range inSandbox() {
			r := b.run(command + " " + s.secureURL("/hello"))
			assert.NotZero(s.t, r.code)
			assert.Empty(s.t, r.stdout)
		}
	}))
}

func closedBy(proto string) string {
	if proto == "socks5" {
		return " end=orderly"
	}
	return " http=200 end=orderly"
}
