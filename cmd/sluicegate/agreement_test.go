//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What check says about a destination is what the gate does with it: without a
// running gate, and for tunnels as for plain requests.
func TestCheckAgreesWithTheGate(t *testing.T) {
	w := newWorld(t)
	own := ownAddress(t)
	grant := ""
	if own.IsValid() {
		// A rule that names an own address does not open it.
		grant = fmt.Sprintf("\n      - {cidr: \"%s/%d\", ports: [22]}", own, own.BitLen())
	}
	w.policy(`
version: 1
product: claude-code
profiles:
  commands:
    listen: {port: 0}
    allow:
      - {host: dev.example.com, resolves_to: [127.0.0.1], ports: [$SECURE, $PLAIN], id: dev}
      - {host: "*.example.com", id: all}` + grant + `
    deny:
      - {host: paste.example.com, id: no-paste}
`)
	gate := w.start().addr(commands)

	targets := []string{
		"https://forbidden.example.net", "http://forbidden.example.net", "https://paste.example.com", "http://paste.example.com",
		"https://other.example.com:8443", "http://other.example.com:443", "https://localhost", "https://printer.local",
		"https://metadata.google.internal", "https://127.0.0.1:22", "https://10.20.0.7", "http://192.0.2.7",
		"https://169.254.169.254:80", "https://[::1]:22", "https://[2001:db8::7]:443", "https://0x7f.1", "https://2130706433",
		"https://dev.example.com:0", "https://dev..example.com",
		fmt.Sprintf("https://dev.example.com:%d", w.secure.port), fmt.Sprintf("http://dev.example.com:%d", w.plain.port),
	}
	if own.IsValid() {
		targets = append(targets, "https://"+netip.AddrPortFrom(own, 22).String())
	} else {
		t.Log("this machine has no address but loopback: a rule for an own address is not tested")
	}
	seen := map[string]bool{}
	for _, target := range targets {
		scheme, host, _ := strings.Cut(target, "://")
		url := target
		if scheme == "http" {
			url += "/hello"
		}
		told, err := ask("http://"+gate, url)
		require.NoError(t, err, target)
		args := []string{"check", host, "--profile", commands, "--json"}
		if scheme == "http" {
			args = append(args, "--http")
		}
		r := w.sluicegate(args...)
		var said struct{ Decision, Reason string }
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &said), "%s\n%s", target, r.stderr)
		if told.status == 200 {
			assert.Equal(t, "allow", said.Decision, target)
			assert.Zero(t, r.code, target)
			continue
		}
		assert.NotEqual(t, "allow", said.Decision, target)
		assert.Equal(t, told.problem.Reason, said.Reason, target)
		assert.Equal(t, 1, r.code, target)
		seen[said.Reason] = true
	}
	assert.Subset(t, keys(seen), []string{
		"not_listed", "port_not_listed", "deny_rule", "local_name", "dest_private", "dest_metadata", "ambiguous_ip", "malformed_host", "bad_port",
	}, "the targets no longer cover these")
	if own.IsValid() {
		assert.True(t, seen["dest_self"], "an own address that a rule lists must stay closed")
	}
}

func keys(m map[string]bool) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	return all
}

// ownAddress is an address of this machine that a rule could name: not loopback,
// not link-local. It is invalid if there is none.
func ownAddress(t *testing.T) netip.Addr {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				if ip = ip.Unmap(); ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
					return ip
				}
			}
		}
	}
	return netip.Addr{}
}
