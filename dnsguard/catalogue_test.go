package dnsguard

import (
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// nodata is the rcode of an answer without records, for the tables.
const nodata = -1

// row is one case of the catalogue: what is asked, what the upstream says, and
// what comes of it. An upstream of nil must not be asked.
type row struct {
	profile  string // std if empty
	ask      question2
	packet   []byte // instead of ask
	upstream script
	rcode    int // or nodata
	answers  []string
	ede      int
	reason   string // of the only record; none if empty
	rule     string // of the record
	matched  string // range of the record
}

func (r row) run(t *testing.T) {
	t.Helper()
	w := newWorld(t)
	if r.upstream == nil {
		w.stub.does(func(a asked) [][]byte {
			t.Errorf("the upstream was asked for %s", a.name())
			return nil
		})
	} else {
		w.stub.does(r.upstream)
	}
	profile := r.profile
	if profile == "" {
		profile = std
	}
	q := r.ask.msg()
	if r.packet != nil {
		q = new(dns.Msg)
		require.NoError(t, q.Unpack(r.packet))
	} else {
		r.packet = pack1(q)
	}
	got := w.unpack(w.send(profile, r.packet), q)

	want := r.rcode
	if want == nodata {
		want = rcodeNoError
		assert.Empty(t, got.Answer)
	}
	assert.Equal(t, rcodeName(want), rcodeName(got.Rcode))
	assert.Equal(t, r.answers, answers3(got))
	if negative := r.rcode == nodata || r.rcode == rcodeNXDomain; negative {
		soa := soaOf(got)
		require.NotNil(t, soa, "a negative answer says how long it holds")
		assert.LessOrEqual(t, soa.Hdr.Ttl, uint32(300))
		assert.Equal(t, soa.Hdr.Ttl, soa.Minttl)
		assert.True(t, dns.IsSubDomain(soa.Hdr.Name, q.Question[0].Name), soa.Hdr.Name)
		if r.rcode == rcodeNXDomain {
			assert.NotEqual(t, q.Question[0].Name, soa.Hdr.Name, "a name that does not exist has no records")
		}
	} else {
		assert.Empty(t, got.Ns)
	}
	ede, text := edeOf(got)
	if q.IsEdns0() != nil {
		assert.Equal(t, r.ede, ede)
		assert.LessOrEqual(t, len(text), maxText)
	}
	for _, rr := range got.Answer {
		assert.GreaterOrEqual(t, rr.Header().Ttl, uint32(5))
		assert.LessOrEqual(t, rr.Header().Ttl, uint32(3600))
	}
	if r.reason == "" {
		assert.Empty(t, w.rec.Events())
		return
	}
	require.Equal(t, []string{r.reason}, w.reasons())
	e := w.last()
	assert.Equal(t, audit.Name("dns.denied"), e.Event)
	assert.Equal(t, audit.LevelWarn, e.Level)
	assert.Equal(t, "dns", e.Proto)
	assert.Equal(t, profile, e.Profile)
	if r.rule != "" && assert.NotNil(t, e.Rule) {
		assert.Equal(t, r.rule, e.Rule.ID)
	}
	assert.Equal(t, r.matched, e.MatchedRange)
	if assert.NotNil(t, e.DNS) {
		sent := rcodeName(got.Rcode)
		if r.rcode == nodata {
			sent = "NODATA"
		}
		assert.Equal(t, sent, e.DNS.RCode, "the record says what was answered")
		assert.Equal(t, ede, e.DNS.EDE)
	}
	if ede != 0 {
		assert.Equal(t, r.reason+" "+e.ID, text, "the text leads to the record")
	}
}

func q(name string, kind uint16) question2  { return question2{name: name, kind: kind} }
func qe(name string, kind uint16) question2 { return question2{name: name, kind: kind, edns: maxUDP} }

// Rows about names and types: everything here is decided without the upstream,
// unless the row has one.
func TestCatalogueNames(t *testing.T) {
	anthropic := records("api.anthropic.com. 30000 IN A 160.79.104.10")
	rows := map[string]row{
		"1 allowed":                 {ask: q("api.anthropic.com", dns.TypeA), upstream: anthropic, answers: []string{"A 160.79.104.10"}},
		"2 denied":                  {ask: q("evil.test", dns.TypeA), rcode: rcodeNXDomain, reason: "not_listed"},
		"3 denied with OPT":         {ask: qe("evil.test", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "not_listed"},
		"4 denied without OPT":      {ask: q("evil.test", dns.TypeAAAA), rcode: rcodeNXDomain, reason: "not_listed"},
		"5 case":                    {ask: q("API.Anthropic.COM", dns.TypeA), upstream: anthropic, answers: []string{"A 160.79.104.10"}},
		"6 ancestor":                {ask: qe("example.com", dns.TypeA), rcode: nodata, ede: 15, reason: "not_listed"},
		"6 ancestor of an ancestor": {ask: qe("net", dns.TypeA), rcode: nodata, ede: 15, reason: "local_name"},
		"8 label boundary":          {ask: qe("notexample.com", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "not_listed"},
		"12 trailing dot":           {ask: q("files.pkg.example.net.", dns.TypeA), upstream: records("files.pkg.example.net. 60 IN A 1.1.1.1"), answers: []string{"A 1.1.1.1"}},
		"13 HTTPS":                  {ask: qe("api.anthropic.com", dns.TypeHTTPS), rcode: nodata, ede: 15, reason: "qtype_not_allowed"},
		"13 SVCB":                   {ask: q("api.anthropic.com", dns.TypeSVCB), rcode: nodata, reason: "qtype_not_allowed"},
		"44 ANY":                    {ask: qe("api.anthropic.com", dns.TypeANY), rcode: nodata, ede: 15, reason: "qtype_not_allowed"},
		"45 TXT":                    {ask: qe("api.anthropic.com", dns.TypeTXT), rcode: nodata, ede: 15, reason: "qtype_not_allowed"},
		"45 NULL":                   {ask: q("api.anthropic.com", dns.TypeNULL), rcode: nodata, reason: "qtype_not_allowed"},
		"45 private use":            {ask: q("api.anthropic.com", 65534), rcode: nodata, reason: "qtype_not_allowed"},
		"45 AXFR":                   {ask: q("api.anthropic.com", dns.TypeAXFR), rcode: nodata, reason: "qtype_not_allowed"},
		"77 localhost, not granted": {profile: open, ask: qe("localhost", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "local_name"},
		"77 below localhost":        {ask: qe("foo.localhost", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "local_name"},
		"78 single label":           {ask: qe("printer", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "local_name"},
		"78 single label, TXT":      {ask: qe("printer", dns.TypeTXT), rcode: rcodeNXDomain, ede: 15, reason: "local_name"},
		"80 private reverse":        {ask: qe("1.1.168.192.in-addr.arpa", dns.TypePTR), rcode: rcodeNXDomain, ede: 15, reason: "special_use"},
		"80 unique-local reverse":   {ask: qe("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa", dns.TypePTR), rcode: rcodeNXDomain, ede: 15, reason: "special_use"},
		"81 public reverse":         {ask: qe("1.1.169.192.in-addr.arpa", dns.TypePTR), rcode: rcodeNXDomain, ede: 15, reason: "special_use"},
		"81 listed reverse":         {ask: qe("1.0.0.1.in-addr.arpa", dns.TypePTR), rcode: rcodeNXDomain, ede: 15, reason: "special_use"},
		"83 resolver discovery":     {ask: qe("_dns.resolver.arpa", dns.TypeSVCB), rcode: nodata, ede: 15, reason: "special_use"},
		"83 resolver.arpa":          {profile: open, ask: qe("resolver.arpa", dns.TypeSOA), rcode: nodata, ede: 15, reason: "special_use"},
		"84 Firefox canary":         {ask: qe("use-application-dns.net", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "canary_name"},
		"85 Apple relay, A":         {profile: open, ask: qe("mask.icloud.com", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "canary_name"},
		"85 Apple relay, HTTPS":     {profile: open, ask: q("mask-h2.icloud.com", dns.TypeHTTPS), rcode: rcodeNXDomain, reason: "canary_name"},
		"90 no profile":             {profile: "agent/gone", ask: qe("api.anthropic.com", dns.TypeA), rcode: rcodeNXDomain, ede: 18, reason: "unknown_profile"},
		"deny rule":                 {ask: qe("paste.example.com", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "deny_rule", rule: "paste"},
		"deny rule, open network":   {profile: open, ask: qe("evil.test", dns.TypeA), rcode: nodata, ede: 15, reason: "deny_rule", rule: "evil"},
		"blocked profile":           {profile: blocked, ask: qe("com", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "mode_blocked"},
		"metadata name":             {profile: open, ask: qe("metadata.google.internal", dns.TypeA), rcode: nodata, ede: 15, reason: "dest_metadata"},
		"WPAD in a domain":          {ask: qe("wpad.corp.example.org", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "local_name"},
		"not WPAD":                  {ask: q("wpad2.corp.example.org", dns.TypeA), upstream: records("wpad2.corp.example.org. 60 IN A 1.1.1.1"), answers: []string{"A 1.1.1.1"}},
		"onion":                     {profile: open, ask: qe("x.onion", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "local_name"},
		"invalid":                   {profile: open, ask: qe("x.invalid", dns.TypeA), rcode: rcodeNXDomain, ede: 15, reason: "special_use"},
		"root":                      {profile: open, ask: qe(".", dns.TypeNS), rcode: nodata, ede: 15, reason: "special_use"},
		"numeric name":              {ask: qe("1.2.3.4", dns.TypeA), rcode: rcodeFormErr, reason: "ambiguous_ip"},
		"32 ipv4only":               {ask: q("ipv4only.arpa", dns.TypeA), answers: []string{"A 192.0.0.170", "A 192.0.0.171"}},
		"32 ipv4only, AAAA":         {ask: q("ipv4only.arpa", dns.TypeAAAA), rcode: nodata},
		"32 ipv4only, not allowed":  {profile: blocked, ask: q("ipv4only.arpa", dns.TypeA), rcode: rcodeNXDomain, reason: "mode_blocked"},
	}
	for name, r := range rows {
		t.Run(name, r.run)
	}
}

// Names of which some text form would match a rule.
func TestCatalogueHostileNames(t *testing.T) {
	labels := map[string][]string{
		"9 a dot inside a label":    {"x.example", "com"},
		"10 NUL":                    {"a\x00b", "example", "com"},
		"10 0xff":                   {"a\xffb", "example", "com"},
		"10 space":                  {"a b", "example", "com"},
		"10 backslash":              {`a\b`, "example", "com"},
		"10 escaped dot as text":    {`x\`, "example", "com"},
		"10 a wildcard":             {"*", "example", "com"},
		"10 an at sign":             {"a@b", "example", "com"},
		"10 escape sequences":       {"\x1b[2Jx", "example", "com"},
		"10 an xn-- label of ASCII": {"xn--a-", "example", "com"},
	}
	for name, parts := range labels {
		t.Run(name, func(t *testing.T) {
			var packet []byte
			packet = append(packet, 0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)
			for _, p := range parts {
				packet = append(append(packet, byte(len(p))), p...)
			}
			packet = append(packet, 0, 0, 1, 0, 1)
			row{packet: packet, rcode: rcodeFormErr, reason: "malformed_host"}.run(t)
		})
	}
}
