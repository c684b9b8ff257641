package dnsguard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/policy"
)

// reasonOf is the reason of an Error, "" for another one.
func reasonOf(err error) policy.Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func edeOfError(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.EDE
	}
	return 0
}

// asking makes a resolver over stubs.
func asking(t testing.TB, timeout time.Duration, stubs ...*stub) *Resolver {
	t.Helper()
	c := Config{Timeout: timeout}
	for _, s := range stubs {
		c.Upstreams = append(c.Upstreams, s.addr.String())
	}
	r, err := New(c)
	require.NoError(t, err)
	return r
}

func TestParseUpstream(t *testing.T) {
	for in, want := range map[string]string{
		"system": "invalid AddrPort", "1.1.1.1": "1.1.1.1:53", "1.1.1.1:5353": "1.1.1.1:5353",
		"::1": "[::1]:53", "[::1]:5353": "[::1]:5353", "fe80::1%eth0": "[fe80::1%eth0]:53",
	} {
		got, err := ParseUpstream(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got.String(), in)
	}
	for _, in := range []string{"", "dns.example", "1.1.1.1:0", "1.1.1.1:", "1.1", "System", "tls://1.1.1.1", "[::1]"} {
		_, err := ParseUpstream(in)
		assert.Error(t, err, in)
	}
	_, err := New(Config{Upstreams: []string{"system", "1.1.1.1"}})
	assert.ErrorContains(t, err, "stands alone")
	_, err = New(Config{Upstreams: []string{"x"}})
	assert.Error(t, err)
}

// The query is rebuilt: it has nothing but the canonical name, the type and
// what every query of ours has.
func TestUpstreamQuery(t *testing.T) {
	w := newWorld(t)
	m := q("Api.Anthropic.Com", dns.TypeA).msg()
	m.Id = 0x4242
	m.AuthenticatedData, m.CheckingDisabled, m.Zero = true, true, true
	m.SetEdns0(4096, true)
	m.IsEdns0().Option = []dns.EDNS0{
		&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "24a5ac1111111111"},
		&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: []byte{10, 1, 2, 0}},
		&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("secret")},
	}
	w.ask(std, m)
	seen := w.stub.all()
	require.NotEmpty(t, seen)
	id := binary.BigEndian.Uint16(seen[0].raw)
	want := "\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x03api\x09anthropic\x03com\x00\x00\x01\x00\x01\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"
	assert.Equal(t, []byte(want), seen[0].raw[2:])
	for range 3 {
		w.ask(std, m)
	}
	ids := map[uint16]bool{}
	for _, a := range w.stub.all() {
		ids[binary.BigEndian.Uint16(a.raw)] = true
	}
	assert.Greater(t, len(ids), 1, "the id is new each time (first %d)", id)
}

// What comes back must answer what was asked; the wait goes on otherwise.
func TestUpstreamStrangers(t *testing.T) {
	right := records("a.example.com. 60 IN A 1.1.1.1")
	wrong := records("a.example.com. 60 IN A 6.6.6.6")
	edit := func(f func(m *dns.Msg)) script {
		return raw(wrong, func(b []byte) []byte {
			m := new(dns.Msg)
			if err := m.Unpack(b); err != nil {
				panic(err)
			}
			f(m)
			return pack1(m)
		})
	}
	strangers := map[string]script{
		"64 another name":           edit(func(m *dns.Msg) { m.Question[0].Name = "b.example.com." }),
		"another type":              edit(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA }),
		"another class":             edit(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }),
		"another id":                edit(func(m *dns.Msg) { m.Id++ }),
		"another opcode":            edit(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }),
		"a query":                   edit(func(m *dns.Msg) { m.Response = false }),
		"no question":               edit(func(m *dns.Msg) { m.Question = nil }),
		"two questions":             edit(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }),
		"REFUSED for another":       edit(func(m *dns.Msg) { m.Rcode, m.Answer, m.Question[0].Name = rcodeRefused, nil, "b.example.com." }),
		"garbage":                   func(asked) [][]byte { return [][]byte{bytes.Repeat([]byte{0xff}, 300)} },
		"nothing":                   func(asked) [][]byte { return [][]byte{{}} },
		"half a header":             raw(wrong, func(b []byte) []byte { return b[:6] }),
		"cut in the question":       raw(wrong, func(b []byte) []byte { return b[:20] }),
		"malformed: cut after":      raw(wrong, func(b []byte) []byte { return b[:len(b)-13] }),
		"malformed: counts":         raw(wrong, func(b []byte) []byte { b[6] = 0xff; return b }),
		"malformed: more announced": raw(wrong, func(b []byte) []byte { b[7] = 9; return b }),
	}
	for name, first := range strangers {
		t.Run(name, func(t *testing.T) {
			s := newStub(t, inTurn(first, right))
			got, err := asking(t, 0, s).Resolve(t.Context(), "a.example.com", TypeA)
			require.NoError(t, err)
			assert.Equal(t, []netip.Addr{netip.MustParseAddr("1.1.1.1")}, got.Addrs)
		})
		t.Run(name+" and nothing else", func(t *testing.T) {
			s := newStub(t, first)
			_, err := asking(t, 100*time.Millisecond, s).Resolve(t.Context(), "a.example.com", TypeA)
			assert.Contains(t, []policy.Reason{policy.ReasonDNSTimeout, policy.ReasonDNSError}, reasonOf(err))
		})
	}
}

// A flood of guesses ends the use of UDP for the question.
func TestUpstreamManyStrangers(t *testing.T) {
	s := newStub(t, func(a asked) [][]byte {
		if a.stream {
			return records("a.example.com. 60 IN A 1.1.1.1")(a)
		}
		var out [][]byte
		for i := range uint16(maxStrangers + 5) {
			m := reply2(a)
			m.Id += i + 1
			out = append(out, pack1(m))
		}
		return out
	})
	got, err := asking(t, 0, s).Resolve(t.Context(), "a.example.com", TypeA)
	require.NoError(t, err)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("1.1.1.1")}, got.Addrs)
	assert.True(t, s.all()[len(s.all())-1].stream)
}

// Answers over TCP are held to the same rules, and to a length.
func TestUpstreamStream(t *testing.T) {
	right := records("a.example.com. 60 IN A 1.1.1.1")
	cut := func(a asked) [][]byte { m := reply2(a); m.Truncated = true; return packed(m) }
	over := func(s script) script {
		return func(a asked) [][]byte {
			if a.stream {
				return s(a)
			}
			return cut(a)
		}
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("a.example.com. 60 IN A 8.%d.%d.1", i/200, i%200))
	}
	tests := map[string]struct {
		script script
		addrs  int
		ede    int
	}{
		"63 the whole answer":   {over(right), 1, 0},
		"another one before it": {over(inTurn(raw(right, func(b []byte) []byte { b[0] ^= 1; return b }), right)), 1, 0},
		"malformed":             {over(raw(right, func(b []byte) []byte { return b[:len(b)-13] })), 0, 24},
		"the longest":           {over(records(many...)), 1000, 0},
		"more than 16 KiB":      {over(raw(right, func(b []byte) []byte { return append(b, make([]byte, maxStream)...) })), 0, 24},
		"too many records": {over(raw(right, func(b []byte) []byte {
			// Each is there: without owner and data.
			binary.BigEndian.PutUint16(b[6:], maxRecords+1)
			return append(b, bytes.Repeat([]byte{0, 0, 99, 0, 1, 0, 0, 0, 0, 0, 0}, maxRecords)...)
		})), 0, 24},
		"cut again": {cut, 0, 0}, // no addresses, and nobody left to ask
		"REFUSED":   {over(rcode(rcodeRefused)), 0, 22},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := asking(t, testWait, newStub(t, tt.script)).Resolve(t.Context(), "a.example.com", TypeA)
			assert.Len(t, got.Addrs, tt.addrs)
			assert.Equal(t, tt.ede, edeOfError(err), "%v", err)
		})
	}
}

// Rows about several upstreams.
func TestCatalogueUpstreams(t *testing.T) {
	ok := records("a.example.com. 60 IN A 1.1.1.1")
	dead := netip.MustParseAddrPort("127.0.0.1:9")
	lame := func(a asked) [][]byte { m := reply2(a); m.RecursionAvailable = false; return packed(m) }
	tests := map[string]struct {
		scripts []script
		ede     int
	}{
		"66 REFUSED, then good":      {[]script{rcode(rcodeRefused), ok}, 0},
		"66 SERVFAIL, then good":     {[]script{rcode(rcodeServFail), ok}, 0},
		"66 NOTIMP, then good":       {[]script{rcode(rcodeNotImp), ok}, 0},
		"a referral, then good":      {[]script{lame, ok}, 0},
		"silence, then good":         {[]script{silence, ok}, 0},
		"malformed, then good":       {[]script{raw(ok, func(b []byte) []byte { return b[:len(b)-13] }), ok}, 0},
		"67 all REFUSED":             {[]script{rcode(rcodeRefused), rcode(rcodeRefused)}, 22},
		"67 REFUSED and SERVFAIL":    {[]script{rcode(rcodeRefused), rcode(rcodeServFail)}, 22},
		"68 silence":                 {[]script{silence}, 23},
		"40 loop is not asked again": {[]script{records("a.example.com. 60 IN CNAME a.example.com."), ok}, 24},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stubs []*stub
			for _, s := range tt.scripts {
				stubs = append(stubs, newStub(t, s))
			}
			timeout := testWait
			if name == "68 silence" {
				timeout = 100 * time.Millisecond
			}
			got, err := asking(t, timeout, stubs...).Resolve(t.Context(), "a.example.com", TypeA)
			assert.Equal(t, tt.ede, edeOfError(err), "%v", err)
			assert.Equal(t, err == nil, len(got.Addrs) == 1)
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		r, err := New(Config{Upstreams: []string{dead.String()}, Timeout: testWait})
		require.NoError(t, err)
		_, err = r.Resolve(t.Context(), "a.example.com", TypeA)
		assert.Equal(t, 23, edeOfError(err), "%v", err)
	})
	t.Run("97 only ourselves", func(t *testing.T) {
		s := newStub(t, ok)
		mapped := netip.AddrPortFrom(netip.AddrFrom16(s.addr.Addr().As16()), s.addr.Port())
		r, err := New(Config{Upstreams: []string{s.addr.String()}, Own: func() []netip.AddrPort { return []netip.AddrPort{mapped} }})
		require.NoError(t, err)
		_, err = r.Resolve(t.Context(), "a.example.com", TypeA)
		assert.Equal(t, policy.ReasonLoop, reasonOf(err))
		assert.Empty(t, s.queries())
	})
}

func TestResolveNames(t *testing.T) {
	r := asking(t, 0, newStub(t, func(a asked) [][]byte { t.Errorf("asked for %s", a.name()); return nil }))
	for _, name := range []string{"", ".", "a..b", "a.", ".a", "A.example", string(bytes.Repeat([]byte("a"), 64)), string(bytes.Repeat([]byte("a."), 127)) + "a"} {
		_, err := r.Resolve(t.Context(), name, TypeA)
		assert.Equal(t, policy.ReasonMalformedHost, reasonOf(err), name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := asking(t, 0, newStub(t, silence)).Resolve(ctx, "a.example", TypeA)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestLookup(t *testing.T) {
	four, six := netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("2606:4700::1111")
	onlyA := func(s script) script {
		return func(a asked) [][]byte {
			if a.msg.Question[0].Qtype == dns.TypeA {
				return records("a.example.com. 60 IN A 1.1.1.1")(a)
			}
			return s(a)
		}
	}
	tests := map[string]struct {
		script script
		addrs  []netip.Addr
		err    error
		reason policy.Reason
	}{
		"both":             {script: records("a.example.com. 60 IN A 1.1.1.1", "a.example.com. 60 IN AAAA 2606:4700::1111"), addrs: []netip.Addr{four, six}},
		"mapped twice":     {script: records("a.example.com. 60 IN A 1.1.1.1", "a.example.com. 60 IN AAAA ::ffff:1.1.1.1"), addrs: []netip.Addr{four}},
		"one failed":       {script: onlyA(rcode(rcodeServFail)), addrs: []netip.Addr{four}},
		"one leads astray": {script: onlyA(records("a.example.com. 60 IN CNAME localhost.")), reason: policy.ReasonCNAMENotAllowed},
		"no such name":     {script: rcode(rcodeNXDomain), err: ErrNoName},
		"no address":       {script: rcode(rcodeNoError, "example.com. 60 IN SOA ns. m. 1 2 3 4 60"), err: ErrNoAddress},
		"failure":          {script: rcode(rcodeServFail), reason: policy.ReasonDNSError},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := asking(t, 0, newStub(t, tt.script)).Lookup(t.Context(), "a.example.com")
			assert.Equal(t, tt.addrs, got)
			if tt.err != nil {
				assert.ErrorIs(t, err, tt.err)
			}
			assert.Equal(t, tt.reason, reasonOf(err), "%v", err)
		})
	}
}

func TestAnswerTTL(t *testing.T) {
	chain := records("a.example.com. 600 IN CNAME b.test.", "b.test. 60 IN A 1.1.1.1", "b.test. 30 IN A 1.1.1.2")
	soa := rcode(rcodeNXDomain, "example.com. 900 IN SOA ns. m. 1 2 3 4 120")
	for name, tt := range map[string]struct {
		script script
		want   time.Duration
	}{
		"smallest of the chain": {chain, 30 * time.Second},
		"of the SOA's minimum":  {soa, 120 * time.Second},
		"top bit set":           {records("a.example.com. 2147483648 IN A 1.1.1.1"), 0},
		"without SOA":           {rcode(rcodeNXDomain), negativeTTL},
	} {
		got, err := asking(t, 0, newStub(t, tt.script)).Resolve(t.Context(), "a.example.com", TypeA)
		require.NoError(t, err)
		assert.Equal(t, tt.want, got.TTL, name)
	}
}
