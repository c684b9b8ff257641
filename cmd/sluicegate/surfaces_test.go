//go:build unix

package main_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// R-D09: one decision has one reason and one rule, by HTTP, CONNECT, SOCKS 5 and
// DNS, and each tells it in its own words.
func TestR_D09_OneDecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`
version: 1
product: claude-code
profiles:
  commands:
    listen: {port: 0, dns: 0}
    allow: [{host: "*.example.com"}]
    deny: [{host: paste.example.com, id: no-paste}]
`)
	g := w.start()
	gate := g.addr(commands)
	dns := w.resolver()
	for host, want := range map[string]string{"paste.example.com": "deny_rule no-paste", "other.example.net": "not_listed "} {
		before := len(w.entries())
		for _, url := range []string{"http://" + host, "https://" + host} {
			told, err := ask("http://"+gate, url)
			require.NoError(t, err)
			assert.Equal(t, 403, told.status)
		}
		assert.Equal(t, "\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", socksAsk(t, gate, host, 443))
		_, err := dns.LookupIP(t.Context(), "ip4", host+".")
		var failed *net.DNSError
		require.ErrorAs(t, err, &failed)
		assert.True(t, failed.IsNotFound)

		protos := map[string]bool{}
		for _, e := range w.entries()[before:] {
			protos[e.Proto] = true
			assert.Equal(t, want, e.Reason+" "+e.Rule.ID, e.Proto)
			assert.Equal(t, host, e.Dest, e.Proto)
		}
		assert.Equal(t, map[string]bool{"http": true, "connect": true, "socks5": true, "dns": true}, protos)
	}
	assert.Empty(t, w.dns.names())
	g.stop()
	w.verifyChain()
}
