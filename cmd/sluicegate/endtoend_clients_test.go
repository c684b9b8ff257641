//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const eventID = `[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`

// problem is the body of a refusal, RFC 9457.
type problem struct {
	Title, Detail, Instance, Reason string
	Status                          int
	Host                            string
	Port                            int
	Retryable                       bool
}

// curl runs curl as an agent's tool would: the gate is all it knows.
func (s *tale) curl(args ...string) result {
	s.t.Helper()
	return s.exec(needs(s.t, "curl"), append([]string{
		"--silent", "--show-error", "--proxy", s.proxy, "--cacert", s.ca.file, "--max-time", "20",
	}, args...)...)
}

func curlAllowed(s *tale) {
	r := s.curl(s.secureURL("/hello"))
	assert.Equal(s.t, result{stdout: greeting}, r)
	s.expectTunnel()

	r = s.curl(s.plainURL("/hello"))
	assert.Equal(s.t, result{stdout: greeting}, r)
	s.expect(fmt.Sprintf("egress.closed allow rule http plain.example.com:%d rule=plain http=200 end=orderly", s.plain.port))

	r = s.curl("--output", "/dev/null", "--write-out", "%{http_code}", s.plainURL("/missing"))
	assert.Equal(s.t, result{stdout: "404"}, r, "an answer of the origin is the origin's")
	s.expect(fmt.Sprintf("egress.closed allow rule http plain.example.com:%d rule=plain http=404 end=orderly", s.plain.port))
}

// expectTunnel wants the two lines of a tunnel to the secure origin. The first
// has no status: it is written before the client gets its answer.
func (s *tale) expectTunnel() {
	s.t.Helper()
	line := fmt.Sprintf("allow rule connect dev.example.com:%d rule=dev", s.secure.port)
	s.expect("egress.opened "+line, "egress.closed "+line+" http=200 end=orderly")
}

func curlRefused(s *tale) {
	r := s.curl("--verbose", "https://forbidden.example.net/")
	assert.Equal(s.t, 56, r.code)
	assert.Contains(s.t, r.stderr, "CONNECT tunnel failed, response 403")
	phrase := regexp.MustCompile(`< HTTP/1\.1 403 Blocked by egress policy \(not_listed\) (` + eventID + `)`).FindStringSubmatch(r.stderr)
	require.NotNil(s.t, phrase, r.stderr)
	denied := s.expect("egress.denied deny not_listed connect forbidden.example.net:443 http=403")
	assert.Equal(s.t, denied[0].ID, phrase[1], "the client is told the id of the record")

	// The record is there before the client knows, so no wait is needed.
	r = s.curl("--include", "http://forbidden.example.net/secret?token=1")
	assert.Zero(s.t, r.code, r.stderr)
	head, body, _ := strings.Cut(r.stdout, "\r\n\r\n")
	all := s.entries()
	s.expect("egress.denied deny not_listed http forbidden.example.net:80 http=403")
	require.Len(s.t, all, len(s.want), "the record came after the refusal")
	id := all[len(all)-1].ID
	assert.Contains(s.t, head, "HTTP/1.1 403 ")
	assert.Contains(s.t, head, "X-Sluicegate-Event: "+id)
	assert.Contains(s.t, head, "X-Proxy-Error: blocked-by-allowlist")
	var p problem
	require.NoError(s.t, json.Unmarshal([]byte(body), &p), body)
	assert.Contains(s.t, p.Detail, "sluicegate explain "+id)
	p.Detail = ""
	assert.Equal(s.t, problem{
		Title: "Blocked by egress policy", Instance: id, Reason: "not_listed", Status: 403, Host: "forbidden.example.net", Port: 80,
	}, p)

	r = s.curl("https://paste.example.com/")
	assert.Equal(s.t, 56, r.code)
	s.expect("egress.denied deny deny_rule connect paste.example.com:443 rule=no-paste http=403")

	// Refused by its port, which the wildcard's rule does not cover.
	r = s.curl("https://other.example.com:8443/")
	assert.Equal(s.t, 56, r.code)
	s.expect("egress.denied deny port_not_listed connect other.example.com:8443 rule=all http=403")
}

// curlSOCKS asks the same port by SOCKS 5: with the name, and with an address
// that curl looked up by itself.
func curlSOCKS(s *tale) {
	socks := strings.Replace(s.proxy, "http://", "socks5h://", 1)
	r := s.curl("--proxy", socks, s.secureURL("/hello"))
	assert.Equal(s.t, result{stdout: greeting}, r)
	line := fmt.Sprintf("allow rule socks5 dev.example.com:%d rule=dev", s.secure.port)
	s.expect("egress.opened "+line, "egress.closed "+line+" end=orderly")

	r = s.curl("--proxy", socks, "https://forbidden.example.net/")
	assert.Equal(s.t, 97, r.code)
	assert.Contains(s.t, r.stderr, "(2)", "not allowed by ruleset")
	s.expect("egress.denied deny not_listed socks5 forbidden.example.net:443")

	r = s.curl("--proxy", strings.Replace(s.proxy, "http://", "socks5://", 1), "http://127.0.0.1:22/")
	assert.Equal(s.t, 97, r.code)
	s.expect("egress.denied deny dest_private socks5 127.0.0.1:22")

	r = s.curl("--proxy", strings.Replace(s.proxy, "http://", "socks4a://", 1), "https://forbidden.example.net/")
	assert.Equal(s.t, 97, r.code)
	s.expect("egress.denied deny not_listed socks4 forbidden.example.net:443")
}

// curlUnixSocket asks by SOCKS 5 over the Unix socket of the profile.
func curlUnixSocket(s *tale) {
	path := filepath.Join(s.state, "commands.sock")
	info, err := os.Stat(path)
	require.NoError(s.t, err)
	assert.Equal(s.t, os.FileMode(0o600), info.Mode().Perm())
	assert.Contains(s.t, s.sluicegate("status").stdout, " unix "+path)
	if r := s.curl("--version"); !strings.Contains(r.stdout, "unix-sockets") {
		s.t.Skip("this curl has no Unix sockets")
	}
	r := s.curl("--proxy", "socks5h://localhost"+path, s.secureURL("/hello"))
	assert.Equal(s.t, result{stdout: greeting}, r)
	line := fmt.Sprintf("allow rule socks5 dev.example.com:%d rule=dev", s.secure.port)
	s.expect("egress.opened "+line, "egress.closed "+line+" end=orderly")
	r = s.curl("--proxy", "socks5h://localhost"+path, "https://forbidden.example.net/")
	assert.Equal(s.t, 97, r.code)
	denied := s.expect("egress.denied deny not_listed socks5 forbidden.example.net:443")
	assert.Equal(s.t, "unix", denied[0].Client.Address)
}

// client is Go's own, as many tools have it.
func (s *tale) client() *http.Client {
	c := newClient(s.proxy, s.ca)
	s.t.Cleanup(c.CloseIdleConnections)
	return c
}

func goClient(s *tale) {
	c := s.client()
	for _, url := range []string{s.secureURL("/hello"), s.plainURL("/hello")} {
		resp, err := c.Get(url)
		require.NoError(s.t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(s.t, err)
		require.NoError(s.t, resp.Body.Close())
		assert.Equal(s.t, greeting, string(body))
		c.CloseIdleConnections()
		if resp.TLS != nil {
			s.expectTunnel()
		} else {
			s.expect(fmt.Sprintf("egress.closed allow rule http plain.example.com:%d rule=plain http=200 end=orderly", s.plain.port))
		}
	}

	_, err := c.Get("https://forbidden.example.net/")
	require.Error(s.t, err)
	denied := s.expect("egress.denied deny not_listed connect forbidden.example.net:443 http=403")
	assert.ErrorContains(s.t, err, "Blocked by egress policy (not_listed) "+denied[0].ID)
}

// refused asks for a URL and wants the refusal and its line.
func (s *tale) refused(url string, status int, reason, line string) problem {
	s.t.Helper()
	answer, err := ask(s.proxy, url)
	require.NoError(s.t, err)
	assert.Equal(s.t, status, answer.status, url)
	assert.Equal(s.t, reason, answer.problem.Reason, url)
	denied := s.expect(line)
	assert.Equal(s.t, denied[0].ID, answer.problem.Instance, url)
	assert.Equal(s.t, denied[0].ID, answer.event, url)
	return answer.problem
}

func privateDestinations(s *tale) {
	// A name that a rule allows, and that leads inside without a grant: refused
	// after the look-up, and where it leads is not told.
	for name, inside := range map[string]string{"inside.example.com": "10.20.0.7", "linked.example.com": "fe80::7"} {
		p := s.refused("https://"+name, 403, "dest_private",
			"egress.denied deny dest_private connect "+name+":443 http=403")
		assert.NotContains(s.t, p.Detail, inside)
		all := s.entries()
		require.Len(s.t, all[len(all)-1].Resolved, 1)
		assert.Equal(s.t, inside, all[len(all)-1].Resolved[0].IP, "the log tells where it led")
	}
	// Literals need no look-up.
	for _, dest := range []string{"10.20.0.7:443", "192.0.2.7:443", "127.0.0.1:22"} {
		s.refused("https://"+dest, 403, "dest_private", "egress.denied deny dest_private connect "+dest+" http=403")
	}
	s.refused("http://10.20.0.7", 403, "dest_private", "egress.denied deny dest_private http 10.20.0.7:80 http=403")
	s.refused("https://169.254.169.254:80", 403, "dest_metadata", "egress.denied deny dest_metadata connect 169.254.169.254:80 http=403")
	s.refused("https://localhost", 403, "local_name", "egress.denied deny local_name connect localhost:443 http=403")
	// The gate itself, by the address of its own listener.
	own := s.gate.addr(commands)
	s.refused("https://"+own, 403, "dest_self", "egress.denied deny dest_self connect "+own+" http=403")
}

func unreachableDestinations(s *tale) {
	p := s.refused("https://nowhere.example.com", 502, "dns_error",
		"egress.closed error dns_error connect nowhere.example.com:443 rule=all http=502 end=server/dns_error")
	assert.True(s.t, p.Retryable)
}

func malformedRequests(s *tale) {
	s.refused("https://0x7f.1", 400, "ambiguous_ip", "egress.denied error ambiguous_ip connect http=400")
	s.refused("https://dev.example.com:0", 400, "bad_port", "egress.denied error bad_port connect http=400")
}
