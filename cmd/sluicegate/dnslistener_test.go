//go:build unix

package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dnsAddr is where the gate answers DNS for a profile.
func (w *world) dnsAddr() string {
	w.t.Helper()
	var s struct{ Profiles []struct{ DNS []string } }
	r := w.sluicegate("status", "--json")
	require.Zero(w.t, r.code, r.stderr)
	require.NoError(w.t, json.Unmarshal([]byte(r.stdout), &s))
	require.NotEmpty(w.t, s.Profiles[0].DNS)
	return s.Profiles[0].DNS[0]
}

// resolver asks the gate's DNS listener and nobody else.
func (w *world) resolver() *net.Resolver {
	w.t.Helper()
	addr := w.dnsAddr()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}}
}

// The DNS listener answers what the policy allows, refuses the rest without a
// packet upstream, and records it.
func TestDNSListener(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`
version: 1
product: claude-code
profiles:
  commands:
    listen: {port: 0, dns: 0}
    allow:
      - {host: dev.example.com, resolves_to: [127.0.0.1], ports: [$SECURE]}
      - {host: inside.example.com}
`)
	w.dns.answer("inside.example.com", "127.0.0.1")
	g := w.start()
	addr, resolver := w.dnsAddr(), w.resolver()
	found, err := resolver.LookupHost(t.Context(), "dev.example.com.")
	require.NoError(t, err)
	assert.Equal(t, []string{"127.0.0.1"}, found)
	for _, name := range []string{"secret-data.evil.example.net.", "inside.example.com."} {
		_, err = resolver.LookupHost(t.Context(), name)
		var failed *net.DNSError
		require.True(t, errors.As(err, &failed), name)
		assert.True(t, failed.IsNotFound, "%s: %v", name, err)
	}
	assert.NotContains(t, w.dns.names(), "secret-data.evil.example.net", "the name went upstream")

	t.Run("node", func(t *testing.T) {
		node, err := exec.LookPath("node")
		if err != nil {
			t.Skip("node is not installed")
		}
		r := w.exec(node, "-e", `
const { Resolver } = require('dns').promises;
const r = new Resolver(); r.setServers([process.argv[1]]);
r.resolve4('dev.example.com').then(a => { console.log(a.join()); return r.resolve4('other.example.net'); })
 .then(() => process.exit(1), e => console.log(e.code));`, addr)
		assert.Zero(t, r.code, r.stderr)
		assert.Equal(t, "127.0.0.1\nENOTFOUND\n", r.stdout)
	})
	g.stop()
	reasons := map[string]string{}
	for _, e := range w.entries() {
		if e.Event == "dns.denied" {
			reasons[e.Dest] = e.Reason
		}
	}
	assert.Equal(t, "not_listed", reasons["secret-data.evil.example.net"])
	assert.Equal(t, "dest_private", reasons["inside.example.com"])
	w.verifyChain()
}
