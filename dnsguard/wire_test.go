package dnsguard

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
	"sluicegate/audit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sluicegate/policy"
)

func TestAppendName(t *testing.T) {
	long := strings.Repeat("\x3f"+strings.Repeat("a", 63), 3)
	tests := map[string]struct {
		msg  string
		off  int
		want string
		next int // 0: refused
	}{
		"root":                      {"\x00", 0, "", 1},
		"a name":                    {"\x01A\x02bC\x00", 0, "\x01a\x02bc", 6},
		"not at the start":          {"xx\x01a\x00yy", 2, "\x01a", 5},
		"pointer":                   {"\x01a\x00\x01b\xc0\x00zz", 3, "\x01b\x01a", 7},
		"pointer to a pointer":      {"\x01a\x00\x01b\xc0\x00\x01c\xc0\x03", 7, "\x01c\x01b\x01a", 11},
		"only a pointer":            {"\x01a\x00\xc0\x00", 3, "\x01a", 5},
		"pointer to itself":         {"\xc0\x00", 0, "", 0},
		"pointer forwards":          {"\xc0\x02\x01a\x00", 0, "", 0},
		"pointer into its own name": {"\x01a\x01b\xc0\x02\x00", 0, "", 0},
		"half a pointer":            {"\x01a\x00\xc0", 3, "", 0},
		"no end":                    {"\x01a", 0, "", 0},
		"label over the end":        {"\x05ab", 0, "", 0},
		"reserved 0x40":             {"\x41" + strings.Repeat("a", 0x41) + "\x00", 0, "", 0},
		"reserved 0x80":             {"\x81" + strings.Repeat("a", 0x81) + "\x00", 0, "", 0},
		"empty":                     {"", 0, "", 0},
		"the longest":               {long + "\x3d" + strings.Repeat("a", 61) + "\x00", 0, long + "\x3d" + strings.Repeat("a", 61), 255},
		"one more":                  {long + "\x3e" + strings.Repeat("a", 62) + "\x00", 0, "", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, next, ok := appendName(nil, []byte(tt.msg), tt.off)
			assert.Equal(t, tt.next != 0, ok)
			if ok {
				assert.Equal(t, tt.want, string(got))
				assert.Equal(t, tt.next, next)
			}
		})
	}
}

// A canonical name goes to the wire and comes back as the same destination, and
// its text stands for exactly its bytes.
func TestNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z_][a-z0-9_]{0,20}(\.[a-z][a-z0-9]{0,20}){0,4}`).Draw(t, "name")
		wire, ok := wireName(name)
		if !ok {
			t.Fatalf("%q is no name", name)
		}
		d, err := policy.ParseLabels(labels([]byte(wire)))
		if err != nil || d.Name() != name {
			t.Fatalf("%q came back as %q, %v", name, d.Name(), err)
		}
		if got := presentation([]byte(wire)); got != name+"." {
			t.Fatalf("%q is written %q", name, got)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 63), 1, 3).Draw(t, "labels")
		var wire []byte
		for _, p := range parts {
			wire = append(append(wire, byte(len(p))), p...)
		}
		buf := make([]byte, 512)
		n, err := dns.PackDomainName(presentation(wire), buf, 0, nil, false)
		if err != nil || string(buf[:n]) != string(wire)+"\x00" {
			t.Fatalf("%x is written %q, which is %x, %v", wire, presentation(wire), buf[:n], err)
		}
	})
}

func TestBelow(t *testing.T) {
	wire := func(name string) string {
		w, ok := wireName(name)
		require.True(t, ok)
		return w
	}
	assert.True(t, below(wire("a.b.c"), wire("b.c")))
	assert.True(t, below(wire("a.b.c"), wire("c")))
	assert.False(t, below(wire("b.c"), wire("b.c")))
	assert.False(t, below(wire("xb.c"), wire("b.c")))
	assert.False(t, below("\x04a\x01b\x01c\x00", "\x01c\x00"), "a label that looks like two is one")
}

func TestRefusalsFollowThePolicy(t *testing.T) {
	words := map[string]int{
		"NODATA": rcodeNoError, "NXDOMAIN": rcodeNXDomain, "FORMERR": rcodeFormErr, "NOTIMP": rcodeNotImp,
		"REFUSED": rcodeRefused, "SERVFAIL": rcodeServFail, "-": rcodeServFail,
	}
	for _, info := range policy.Reasons() {
		r := refusalFor(info.Reason, false)
		if info.DNS.RCode == "DROP" {
			assert.Nil(t, r, info.Reason)
			continue
		}
		want, ok := words[info.DNS.RCode]
		require.True(t, ok, "%s has an answer nobody here knows: %s", info.Reason, info.DNS.RCode)
		assert.Equal(t, want, r.rcode, info.Reason)
		assert.Equal(t, info.DNS.EDE, r.ede, info.Reason)
		assert.Equal(t, want == rcodeNXDomain || info.DNS.RCode == "NODATA", r.negative, info.Reason)
		assert.Empty(t, r.addrs, "a refusal never has an address")
		if below := refusalFor(info.Reason, true); want == rcodeNXDomain {
			assert.Equal(t, rcodeNoError, below.rcode, info.Reason)
		} else {
			assert.Equal(t, r, below, info.Reason)
		}
	}
	s := &Server{}
	assert.LessOrEqual(t, len(s.errorText(policy.ReasonMalformedAuthority, strings.Repeat("x", 36))), maxText)
}

func TestTargets(t *testing.T) {
	require.NotNil(t, openNetwork(), "the constant policy compiles")
	for target, want := range map[string]policy.Reason{
		"cdn.example": "", "localhost": policy.ReasonCNAMENotAllowed, "a.localhost": policy.ReasonCNAMENotAllowed,
		"router": policy.ReasonCNAMENotAllowed, "x.local": policy.ReasonCNAMENotAllowed, "x.home.arpa": policy.ReasonCNAMENotAllowed,
		"metadata.goog": policy.ReasonCNAMENotAllowed, "1.2.3.4": policy.ReasonCNAMENotAllowed,
	} {
		wire, ok := wireName(target)
		require.True(t, ok)
		_, err := judgeTarget("public.example", wire)
		assert.Equal(t, want, reasonOf(classify(err)), target)
	}
	assert.True(t, isLocalName("db.internal"))
	assert.False(t, isLocalName("db.internal.example"))
}

func TestSpecialNames(t *testing.T) {
	for name, want := range map[string]policy.Reason{
		"in-addr.arpa": policy.ReasonSpecialUse, "1.0.0.127.in-addr.arpa": policy.ReasonSpecialUse, "x.ip6.arpa": policy.ReasonSpecialUse,
		"_dns.resolver.arpa": policy.ReasonSpecialUse, "a.invalid": policy.ReasonSpecialUse, "a.alt": policy.ReasonSpecialUse,
		"use-application-dns.net": policy.ReasonCanaryName, "mask-canary.icloud.com": policy.ReasonCanaryName,
		// Neighbours.
		"in-addr.arpa.example": "", "xin-addr.arpa": "", "icloud.com": "", "mask.icloud.com.example": "", "unmask.icloud.com": "",
		"alt.example": "", "ipv4only.arpa": "", "home.arpa": "",
	} {
		got, ok := specialName(name)
		assert.Equal(t, want != "", ok, name)
		assert.Equal(t, want, got.reason, name)
	}
}

// A long question is cut in its record, and says so.
func TestRecordOfALongName(t *testing.T) {
	q := query{asked: true, kind: typeA, class: classIN}
	for range 3 {
		q.name = append(append(q.name, 63), strings.Repeat("\x01", 63)...)
	}
	w := newWorld(t)
	e := w.event(&flow{query: q}, audit.DNSDenied)
	assert.LessOrEqual(t, len(e.Request.TargetRaw), maxTarget)
	assert.True(t, strings.HasSuffix(e.Request.TargetRaw, `\x01. IN A`), e.Request.TargetRaw)
	assert.Equal(t, []string{"request.target_raw"}, e.Truncated)
}
