//go:build unix

package main_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Faults that people reported of the records of programs like this one, by their
// number in the project's list.

// socksAsk asks for a tunnel by SOCKS 5 and returns what the gate sent.
func socksAsk(t *testing.T, gate, host string, port uint16) string {
	t.Helper()
	conn, err := net.Dial("tcp", gate)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "\x05\x01\x00\x05\x01\x00\x03"+string([]byte{byte(len(host))})+host+string([]byte{byte(port >> 8), byte(port)}))
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(answer)
}

// lookUp asks the gate's DNS listener, and wants no answer.
func (w *world) lookUp(host string) {
	w.t.Helper()
	_, err := w.resolver().LookupIP(w.t.Context(), "ip4", host+".")
	require.Error(w.t, err)
}

// Denials are invisible at the default level.
func TestR_A01_EveryDenialIsRecorded(t *testing.T) {
	for _, level := range []string{"", "error"} {
		t.Run("log level "+level, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.policy("version: 1\nproduct: claude-code\nprofiles:\n  commands:\n    listen: {port: 0, dns: 0}\n")
			g := w.start(func(cmd *exec.Cmd) {
				if level != "" {
					cmd.Args = append(cmd.Args, "--log-level", level)
				}
			})
			gate := g.addr(commands)
			for _, url := range []string{"http://a.example.net", "https://a.example.net"} {
				told, err := ask("http://"+gate, url)
				require.NoError(t, err)
				assert.Equal(t, 403, told.status)
			}
			socksAsk(t, gate, "a.example.net", 443)
			w.lookUp("a.example.net")
			g.stop()
			assert.Equal(t, []string{
				"service.started previous=unknown",
				"egress.denied deny not_listed http a.example.net:80 http=403",
				"egress.denied deny not_listed connect a.example.net:443 http=403",
				"egress.denied deny not_listed socks5 a.example.net:443",
				"dns.denied deny not_listed dns a.example.net:0",
				"service.stopped cause=signal",
			}, w.story())
		})
	}
}

// Records say neither reason nor rule, or mix refusals with faults of others.
func TestR_A02_ReasonAndRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`
version: 1
product: claude-code
profiles:
  commands:
    listen: {port: 0}
    allow:
      - {host: dev.example.com, resolves_to: [127.0.0.1], ports: [$SECURE], id: dev}
      - {host: inside.example.com, id: inside}
      - {host: nowhere.example.com, id: nowhere}
    deny: [{host: paste.example.com, id: paste}]
`)
	w.dns.answer("inside.example.com", "10.0.0.7")
	g := w.start()
	gate := g.addr(commands)
	dev := fmt.Sprintf("dev.example.com:%d", w.secure.port)

	conn, resp, err := dialThrough(gate, "https://"+dev)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	fronting := tls.Client(conn, &tls.Config{ServerName: "evil.example.net", RootCAs: w.ca.pool})
	assert.ErrorContains(t, fronting.Handshake(), "remote error: tls: access denied")
	require.NoError(t, conn.Close())
	w.await(4)

	for _, url := range []string{
		"https://other.example.net", "https://paste.example.com", "https://inside.example.com", "https://10.0.0.7",
		"https://inside.example.com:22", "https://0x7f.1", "https://" + gate, "https://nowhere.example.com",
	} {
		told, err := ask("http://"+gate, url)
		require.NoError(t, err)
		assert.NotEqual(t, 200, told.status, url)
	}
	conn, err = net.Dial("tcp", gate)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "\x05\x01\x02") // a password or nothing
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "\x05\xff", string(answer))
	require.NoError(t, conn.Close())
	g.stop()

	type want struct{ line, rule, layer string }
	wants := map[string]want{
		"sni_mismatch":    {"egress.denied deny sni_mismatch connect " + dev + " rule=dev", "dev", "product"},
		"not_listed":      {"egress.denied deny not_listed connect other.example.net:443 http=403", "", "product"},
		"deny_rule":       {"egress.denied deny deny_rule connect paste.example.com:443 rule=paste http=403", "paste", "product"},
		"dest_private":    {"egress.denied deny dest_private connect 10.0.0.7:443 http=403", "", "builtin"},
		"port_not_listed": {"egress.denied deny port_not_listed connect inside.example.com:22 rule=inside http=403", "inside", "product"},
		"ambiguous_ip":    {"egress.denied error ambiguous_ip connect http=400", "", ""},
		"dest_self":       {"egress.denied deny dest_self connect " + gate + " http=403", "", "builtin"},
		"bad_auth":        {"egress.denied error bad_auth socks5", "", ""},
		"dns_error":       {"egress.closed error dns_error connect nowhere.example.com:443 rule=nowhere http=502 end=server/dns_error", "nowhere", "product"},
	}
	seen := map[string]entry{}
	for _, e := range w.entries() {
		if e.Reason != "rule" {
			seen[e.Reason] = e
		}
	}
	for reason, want := range wants {
		e, ok := seen[reason]
		if !assert.True(t, ok, reason) {
			continue
		}
		assert.Equal(t, want.line, e.String())
		assert.Equal(t, want.layer, e.Layer, reason)
		assert.Equal(t, "claude-code", e.Product, reason)
		assert.Equal(t, commands, e.Profile, reason)
		assert.Equal(t, "127.0.0.1", e.Client.Address, reason)
		if want.rule != "" {
			assert.Equal(t, w.policyFile(), e.Rule.File, reason)
			assert.Positive(t, e.Rule.Line, reason)
		}
	}
	assert.Equal(t, "evil.example.net", seen["sni_mismatch"].SNI, "both names")
}

// Bytes that an attacker chose forge lines, or speak to the reader's terminal.
func TestR_A06_HostileBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	gate := g.addr(commands)
	hosts := []string{"a\"},{\"decision\":\"allow\"\n{", "\x1b[2J\x1b]0;pwned\x07", "evil.test\n{\"event\":\"x\"}", "\xe2\x80\xae\xe2\x80\xa8", "%s%n${jndi:x}", "=cmd|'/c calc'!A1"}
	for _, host := range hosts {
		assert.Equal(t, "\x05\x00\x05\x01", socksAsk(t, gate, host, 443)[:4])
	}
	g.stop()
	lines := logLines(t, w.audit)
	require.Len(t, lines, len(hosts)+2)
	for _, line := range lines {
		for _, b := range line {
			require.True(t, b >= ' ' && b <= '~', "%q", line)
		}
	}
	for _, args := range [][]string{{"tail"}, {"tail", "--json"}, {"tail", "--fold"}} {
		r := w.sluicegate(args...)
		require.Zero(t, r.code, r.stderr)
		for _, b := range []byte(strings.ReplaceAll(r.stdout, "\n", "")) {
			require.True(t, b >= ' ' && b <= '~', "%v prints %q", args, r.stdout)
		}
	}
	w.verifyChain()
}

// The gate reports its own traffic as denials.
func TestR_A08_OwnTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	for range 3 {
		require.Zero(t, w.sluicegate("status").code)
		require.Zero(t, w.sluicegate("policy", "reload").code)
	}
	// A look at the port is no request.
	conn, err := net.Dial("tcp", g.addr(commands))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	g.stop()
	assert.Equal(t, []string{"service.started previous=unknown", "service.stopped cause=signal"}, w.story())
	assert.Empty(t, w.dns.names())
}

// R-A03: somebody else's rotation loses or strands records: files that are moved
// away under the gate, with a signal or without.
func TestR_A03_ForeignRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	gate := "http://" + g.addr(commands)
	var files []string
	told := map[string]bool{}
	for round := range 4 {
		var asking sync.WaitGroup
		var mu sync.Mutex
		for range 4 {
			asking.Go(func() {
				for range 50 {
					a, err := ask(gate, "https://forbidden.example.net")
					if !assert.NoError(t, err) || !assert.Equal(t, 403, a.status) {
						return
					}
					mu.Lock()
					told[a.event] = true
					mu.Unlock()
				}
			})
		}
		eventually(t, "some refusals", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(told) > round*200+20
		})
		moved := fmt.Sprintf("%s.%d", w.audit, round)
		require.NoError(t, os.Rename(w.audit, moved))
		files = append(files, moved)
		if round%2 == 0 {
			g.signal(syscall.SIGHUP)
		}
		asking.Wait()
		eventually(t, "a new file", func() bool {
			_, err := os.Stat(w.audit)
			return err == nil
		})
	}
	g.stop()
	info, err := os.Stat(w.audit)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm()&^0o040)
	require.Len(t, told, 800)
	seq := uint64(0)
	for _, file := range append(files, w.audit) {
		for _, line := range logLines(t, file) {
			var e entry
			require.NoError(t, json.Unmarshal(line, &e))
			assert.Equal(t, seq+1, e.Seq, "in %s", file)
			seq = e.Seq
			delete(told, e.ID)
		}
	}
	assert.Empty(t, told, "refusals that clients saw and no file has")
}
