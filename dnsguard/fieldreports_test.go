package dnsguard

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Faults that people reported of programs like this one, by their number in the
// project's list.

// Denied names are still looked up.
func TestR_D01_DeniedNamesAreNotLookedUp(t *testing.T) {
	w := newWorld(t)
	const name = "c2VjcmV0LWRhdGE.evil.example.net"
	kinds := []uint16{dns.TypeA, dns.TypeTXT, dns.TypeAAAA, dns.TypeNS}
	for _, kind := range kinds {
		for _, ask := range []func(string, *dns.Msg) *dns.Msg{w.ask, w.askTCP} {
			got := ask(std, qe(name, kind).msg())
			assert.Equal(t, rcodeNXDomain, got.Rcode)
			e := w.last()
			assert.Equal(t, strings.ToLower(name), e.Dest)
			assert.Equal(t, name+". IN "+typeName(kind), e.Request.TargetRaw)
			assert.Equal(t, "add_rule", e.Suggestion)
			assert.Contains(t, e.Msg, strings.ToLower(name)+" "+typeName(kind)+" for "+std)
		}
	}
	assert.Len(t, w.rec.Events(), 2*len(kinds))
	assert.Empty(t, w.stub.queries())
}

// Letter case changes the verdict.
func TestR_D02_CaseChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.stub.does(records("allowed.example.com. 60 IN A 1.1.1.1"))
	got := w.ask(std, q("EvIl.eXaMpLe.NeT", dns.TypeA).msg())
	assert.Equal(t, rcodeNXDomain, got.Rcode)
	assert.Equal(t, "evil.example.net", w.last().Dest)
	m := q("ALLOWED.example.COM", dns.TypeA).msg()
	b := w.send(std, pack1(m))
	assert.Equal(t, []string{"A 1.1.1.1"}, answers3(w.unpack(b, m)))
	assert.Contains(t, string(b), "\x07ALLOWED\x07example\x03COM\x00")
	for _, a := range w.stub.all() {
		assert.Contains(t, string(a.raw), "\x07allowed\x07example\x03com\x00")
	}
}

// Other record types escape the filter.
func TestR_D03_EveryTypeIsDenied(t *testing.T) {
	w := newWorld(t)
	for _, kind := range []uint16{1, 28, 65, 64, 16, 15, 33, 255, 2, 6, 12} {
		got := w.ask(std, q("evil.test", kind).msg())
		assert.Equal(t, rcodeNXDomain, got.Rcode, typeName(kind))
		e := w.last()
		assert.Equal(t, "not_listed", e.Reason)
		assert.Equal(t, "evil.test. IN "+typeName(kind), e.Request.TargetRaw)
	}
	assert.Empty(t, w.stub.queries())
}

// Private addresses in answers. There is no cache: the second query is as the
// first. The catalogue has more addresses.
func TestR_D04_PrivateAnswers(t *testing.T) {
	w := newWorld(t)
	for _, ip := range []string{"10.0.0.5", "127.0.0.1", "169.254.169.254", "0.0.0.0", "::ffff:10.0.0.1", "fd00::1"} {
		w.stub.does(records(address("a.example.com.", ip)))
		for range 2 {
			before := len(w.rec.Events())
			got := w.ask(std, q("a.example.com", typeFor(ip)).msg())
			assert.Equal(t, rcodeNoError, got.Rcode)
			assert.Empty(t, got.Answer)
			require.Len(t, w.rec.Events(), before+1)
			assert.Contains(t, []string{"dest_private", "dest_metadata"}, w.last().Reason)
		}
	}
	// The exception is a rule that names the host and the range.
	w.stub.does(records("cache.corp.example. 60 IN A 10.20.0.1"))
	assert.Equal(t, []string{"A 10.20.0.1"}, answers3(w.ask(std, q("cache.corp.example", dns.TypeA).msg())))
}

// A query without a question kills the server.
func TestR_D05_QueryWithoutQuestion(t *testing.T) {
	w := newWorld(t)
	packet, err := hex.DecodeString("123401000000000000000000")
	require.NoError(t, err)
	want := []byte{0x12, 0x34, 0x81, 0x81, 0, 0, 0, 0, 0, 0, 0, 0}
	assert.Equal(t, want, w.send(std, packet))
	assert.Equal(t, want, w.sendTCP(std, packet))
	for _, n := range []int{11, 1, 0} {
		silent(t, w, packet[:n], false)
		silent(t, w, packet[:n], true)
	}
	assert.Equal(t, rcodeNXDomain, w.ask(std, q("evil.test", dns.TypeA).msg()).Rcode, "it still answers")
}

// Large answers over UDP.
func TestR_D06_LargeAnswers(t *testing.T) {
	w := newWorld(t)
	var rrs []string
	for i := range 190 {
		rrs = append(rrs, fmt.Sprintf("big.example.com. 60 IN A 8.8.%d.%d", i/100, i%100))
	}
	w.stub.does(records(rrs...)) // 3 KB: the guard itself must ask over TCP
	for _, c := range []struct {
		edns  uint16
		limit int
	}{{0, 512}, {100, 512}, {1232, 1232}, {4096, 1232}} {
		m := question2{"big.example.com", dns.TypeA, c.edns}.msg()
		b := w.send(std, pack1(m))
		got := w.unpack(b, m)
		assert.LessOrEqual(t, len(b), c.limit)
		assert.True(t, got.Truncated)
		assert.NotEmpty(t, got.Answer)
	}
	for _, edns := range []uint16{0, 1232} {
		got := w.askTCP(std, question2{"big.example.com", dns.TypeA, edns}.msg())
		assert.False(t, got.Truncated)
		assert.Len(t, got.Answer, len(rrs))
	}
}

// How long does a denial stick?
func TestR_D07_DenialsAreShort(t *testing.T) {
	w := newWorld(t)
	w.stub.does(records("new.test. 60 IN A 1.1.1.1"))
	m := q("new.test", dns.TypeA).msg()
	got := w.ask(std, m)
	require.NotNil(t, soaOf(got))
	assert.Equal(t, uint32(5), soaOf(got).Hdr.Ttl)
	assert.Equal(t, uint32(5), soaOf(got).Minttl)
	w.load(strings.ReplaceAll(stdYAML, "api.anthropic.com", "new.test"))
	assert.Equal(t, []string{"A 1.1.1.1"}, answers3(w.ask(std, m)), "the next query sees the new policy")
	w.load(stdYAML)
	assert.Equal(t, rcodeNXDomain, w.ask(std, m).Rcode, "and the one after it the old one: catalogue 71")
}

// Silence instead of an answer. How fast an answer comes is for the benchmarks;
// here it must come at all, and the right one.
func TestR_D08_EveryQueryGetsAnAnswer(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.resolver.Timeout = 200 * time.Millisecond })
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		assert.Equal(t, rcodeNXDomain, w.ask(std, q("evil.test", kind).msg()).Rcode)
	}
	assert.Equal(t, rcodeRefused, w.ask(std, chaos()).Rcode)
	m := q("api.anthropic.com", dns.TypeA).msg()
	m.Opcode = dns.OpcodeStatus
	h, _ := parseHeader(w.send(std, pack1(m)))
	assert.Equal(t, rcodeNotImp, h.rcode())
	w.stub.does(silence)
	got := w.ask(std, qe("api.anthropic.com", dns.TypeA).msg())
	assert.Equal(t, rcodeServFail, got.Rcode)
	ede, _ := edeOf(got)
	assert.Equal(t, 23, ede)
	assert.Equal(t, "dns_timeout", w.last().Reason)
	assert.Equal(t, "error", w.last().Decision)
}

// One decision, three faces: the DNS face has the reason that every surface has.
// That the others agree is tested where they meet, above this package.
func TestR_D09_ReasonsAreThoseOfThePolicy(t *testing.T) {
	w := newWorld(t)
	w.ask(std, q("paste.example.com", dns.TypeA).msg())
	e := w.last()
	assert.Equal(t, "deny_rule", e.Reason)
	require.NotNil(t, e.Rule)
	assert.Equal(t, "paste", e.Rule.ID)
	assert.Equal(t, "agent.yaml", e.Rule.File)
	assert.Equal(t, "product", e.Layer)
	assert.Equal(t, w.snapshot.Load().Digest(), e.Policy.Digest)
}

// Split names after VPN up and down: the list of servers comes from a file.
func TestR_D10_SettingsThatChange(t *testing.T) {
	a := newStub(t, records("a.example.com. 60 IN A 1.1.1.1"))
	b := newStub(t, records("a.example.com. 60 IN A 2.2.2.2"))
	dir := t.TempDir()
	path := filepath.Join(dir, "resolv.conf")
	write := func(to string, s *stub) {
		// The stub's port stands for 53.
		require.NoError(t, os.WriteFile(to, []byte("nameserver 127.0.0.1\nsearch corp.example\n# "+s.addr.String()+"\n"), 0o600))
	}
	write(path, a)
	var clock atomic.Int64
	clock.Store(time.Now().UnixNano())
	var log strings.Builder
	src := newSystemSource(slog.New(slog.NewTextHandler(&log, nil)))
	src.names.path = ""
	src.resolv.path = path
	src.resolv.now = func() time.Time { return time.Unix(0, clock.Load()) }
	src.resolv.parse = portFromComment(t)
	w := newWorld(t, func(s *setup) { s.resolver = Config{testOnlySystem: src} })
	m := q("a.example.com", dns.TypeA).msg()
	assert.Equal(t, []string{"A 1.1.1.1"}, answers3(w.ask(std, m)))
	write(filepath.Join(dir, "next"), b)
	require.NoError(t, os.Rename(filepath.Join(dir, "next"), path))
	clock.Add(int64(checkEvery))
	assert.Equal(t, []string{"A 2.2.2.2"}, answers3(w.ask(std, m)), "two seconds later, without a restart")
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), "one line says so: %s", log.String())
	assert.NotContains(t, strings.Join(b.queries(), " "), "corp.example", "no search domain")
}
