package dnsguard

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/policy"
)

// portFromComment reads resolv.conf, and the port of its servers from a comment.
func portFromComment(t *testing.T) func([]byte) []netip.AddrPort {
	return func(data []byte) []netip.AddrPort {
		servers := parseResolvConf(data)
		_, comment, _ := bytes.Cut(data, []byte("# "))
		ap, err := netip.ParseAddrPort(string(bytes.TrimSpace(comment)))
		if err != nil {
			t.Errorf("the file has no port: %s", data)
		}
		for i, s := range servers {
			servers[i] = netip.AddrPortFrom(s.Addr(), ap.Port())
		}
		return servers
	}
}

func TestParseResolvConf(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		"empty":           {"", nil},
		"usual":           {"# made by hand\nnameserver 10.0.0.53\nsearch corp.example\noptions edns0\n", []string{"10.0.0.53:53"}},
		"several":         {"nameserver 1.1.1.1\nnameserver 2606:4700::1111\n", []string{"1.1.1.1:53", "[2606:4700::1111]:53"}},
		"at most three":   {"nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4\n", []string{"1.1.1.1:53", "1.1.1.2:53", "1.1.1.3:53"}},
		"scoped":          {"nameserver fe80::1%eth0\n", []string{"[fe80::1%eth0]:53"}},
		"twice":           {"nameserver 1.1.1.1\nnameserver 1.1.1.1\n", []string{"1.1.1.1:53"}},
		"a name":          {"nameserver dns.example\n", nil},
		"short octets":    {"nameserver 127.1\n", nil},
		"tabs and spaces": {"\tnameserver\t 1.1.1.1  \r\n", []string{"1.1.1.1:53"}},
		"commented out":   {"#nameserver 1.1.1.1\n;nameserver 1.1.1.2\n", nil},
		"trailing word":   {"nameserver 1.1.1.1 # office\n", []string{"1.1.1.1:53"}},
		"no newline":      {"nameserver 1.1.1.1", []string{"1.1.1.1:53"}},
		"another keyword": {"nameservers 1.1.1.1\n", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range parseResolvConf([]byte(tt.file)) {
				got = append(got, s.String())
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

// systemIn is a source whose files are in a folder of the test.
func systemIn(t *testing.T, resolv, hosts string) *systemSource {
	t.Helper()
	dir := t.TempDir()
	src := newSystemSource(nil)
	src.resolv.path, src.names.path = filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	require.NoError(t, os.WriteFile(src.names.path, []byte(hosts), 0o600))
	if resolv != "" {
		require.NoError(t, os.WriteFile(src.resolv.path, []byte(resolv), 0o600))
	}
	src.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		t.Error("the system's resolver was asked")
		return nil, nil
	}
	return src
}

func TestHosts(t *testing.T) {
	src := systemIn(t, "nameserver 127.0.0.1\n", "127.0.0.1 localhost # usual\n10.0.0.9\tNAS.corp.example. nas\n::1 localhost\n"+
		"10.0.0.10 nas\n10.0.0.9 nas\nfe80::1%lo0 scoped\nnonsense x\n1.2.3.4\n")
	r, err := New(Config{testOnlySystem: src})
	require.NoError(t, err)
	ask := func(name string, kind Type) []string {
		t.Helper()
		a, err := r.Resolve(t.Context(), name, kind)
		require.NoError(t, err)
		assert.Equal(t, localTTL, a.TTL)
		var out []string
		for _, addr := range a.Addrs {
			out = append(out, addr.String())
		}
		return out
	}
	assert.Equal(t, []string{"127.0.0.1"}, ask("localhost", TypeA))
	assert.Equal(t, []string{"::1"}, ask("localhost", TypeAAAA))
	assert.Equal(t, []string{"10.0.0.9"}, ask("nas.corp.example", TypeA))
	assert.Empty(t, ask("nas.corp.example", TypeAAAA), "the file has the name, so nobody else is asked")
	assert.Equal(t, []string{"10.0.0.9", "10.0.0.10"}, ask("nas", TypeA))
	assert.Equal(t, []string{"127.0.0.1"}, ask("app.localhost", TypeA), "RFC 6761: not in the file, not asked for")
	both, err := r.Lookup(t.Context(), "localhost")
	require.NoError(t, err)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}, both)
}

func TestHostsOnlyWithSystem(t *testing.T) {
	s := newStub(t, rcode(rcodeNXDomain))
	r, err := New(Config{Upstreams: []string{s.addr.String()}, testOnlySystem: systemIn(t, "", "10.0.0.9 nas.corp.example\n")})
	require.NoError(t, err)
	_, err = r.Lookup(t.Context(), "nas.corp.example")
	assert.ErrorIs(t, err, ErrNoName)
	assert.Contains(t, s.queries(), "nas.corp.example. A")
}

func TestSystemLibrary(t *testing.T) {
	src := systemIn(t, "", "")
	src.lookup = func(_ context.Context, network, host string) ([]netip.Addr, error) {
		switch host {
		case "gone.example.":
			return nil, &net.DNSError{IsNotFound: true}
		case "slow.example.":
			return nil, &net.DNSError{IsTimeout: true}
		case "a.example.":
			if network == "ip4" {
				return []netip.Addr{netip.MustParseAddr("::ffff:1.1.1.1"), netip.MustParseAddr("1.1.1.1")}, nil
			}
			return nil, &net.DNSError{IsNotFound: true}
		}
		t.Errorf("asked for %s %s", network, host)
		return nil, nil
	}
	var own []netip.AddrPort
	r, err := New(Config{testOnlySystem: src, Own: func() []netip.AddrPort { return own }})
	require.NoError(t, err)
	got, err := r.Lookup(t.Context(), "a.example")
	require.NoError(t, err)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("1.1.1.1")}, got)
	_, err = r.Lookup(t.Context(), "gone.example")
	assert.ErrorIs(t, err, ErrNoAddress)
	_, err = r.Lookup(t.Context(), "slow.example")
	assert.Equal(t, policy.ReasonDNSTimeout, reasonOf(err))
	if resolvConf == "" {
		return // no file: the system asks whom it wants
	}
	own = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}
	_, err = r.Lookup(t.Context(), "a.example")
	assert.Equal(t, policy.ReasonLoop, reasonOf(err), "it would ask this machine's port 53")
}

func TestSettingsAreReadWhenTheyChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	now := time.Now()
	reads := 0
	file := settings[string]{
		path: path, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now },
		parse: func(b []byte) string { reads++; return string(b) },
	}
	assert.Empty(t, file.get(), "no file")
	put := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	put("one")
	assert.Empty(t, file.get(), "not checked again yet")
	now = now.Add(checkEvery)
	assert.Equal(t, "one", file.get())
	now = now.Add(checkEvery)
	assert.Equal(t, "one", file.get())
	assert.Equal(t, 1, reads, "it did not change")
	put("three")
	now = now.Add(checkEvery)
	assert.Equal(t, "three", file.get())
	require.NoError(t, os.Remove(path))
	now = now.Add(checkEvery)
	assert.Empty(t, file.get(), "a file that is gone says nothing")
}
