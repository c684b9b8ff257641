package dnsguard

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Go's own resolver, pointed at the guard.
func TestClientGo(t *testing.T) {
	w := newWorld(t)
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, w.addr[std].String())
	}}
	addrs, err := r.LookupHost(t.Context(), "api.anthropic.com.")
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"160.79.104.10", "2607:6bc0::10"}, addrs)
	for _, name := range []string{"evil.test.", "example.com.", "printer."} {
		_, err = r.LookupHost(t.Context(), name)
		var dnsErr *net.DNSError
		if assert.ErrorAs(t, err, &dnsErr, name) {
			assert.True(t, dnsErr.IsNotFound, "a denial is final: no other server is asked")
			assert.False(t, dnsErr.IsTemporary)
		}
	}
	w.stub.does(records("a.example.com. 60 IN A 10.0.0.1"))
	_, err = r.LookupHost(t.Context(), "a.example.com.")
	var dnsErr *net.DNSError
	if assert.ErrorAs(t, err, &dnsErr) {
		assert.True(t, dnsErr.IsNotFound)
	}
	_, err = r.LookupTXT(t.Context(), "api.anthropic.com.")
	assert.Error(t, err)
	assert.NotContains(t, w.stub.queries(), "api.anthropic.com. TXT")
}

// nodeScript asks for each argument and prints the outcome of all as JSON.
const nodeScript = `
const {Resolver} = require('dns').promises;
const r = new Resolver({timeout: 4000, tries: 1});
const [, server, ...names] = process.argv;
r.setServers([server]);
(async () => {
  const out = {};
  for (const n of names) out[n] = await r.resolve4(n).catch(e => e.code);
  console.log(JSON.stringify(out));
})();`

// Node's resolver (c-ares), pointed at the guard.
func TestClientNode(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node, which is not installed")
	}
	w := newWorld(t)
	out, err := exec.CommandContext(t.Context(), node, "-e", nodeScript, w.addr[std].String(),
		"api.anthropic.com", "evil.test", "example.com", "printer").Output()
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(out, &got), "%s", out)
	assert.Equal(t, fmt.Sprint(map[string]any{
		"api.anthropic.com": []any{"160.79.104.10"}, "evil.test": "ENOTFOUND", "example.com": "ENODATA", "printer": "ENOTFOUND",
	}), fmt.Sprint(got))
}
