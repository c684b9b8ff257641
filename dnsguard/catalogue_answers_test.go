package dnsguard

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/policy"
)

// Rows about the addresses of an allowed name. Each refused one has the
// neighbour just outside its range where there is one.
func TestCatalogueAddresses(t *testing.T) {
	refused := map[string]struct{ ip, reason, matched string }{
		"20 private":                      {"10.0.0.5", "dest_private", "private-use"},
		"20 private, 172":                 {"172.31.255.255", "dest_private", "private-use"},
		"20 private, 192":                 {"192.168.0.1", "dest_private", "private-use"},
		"22 this network":                 {"0.0.0.0", "dest_private", "this network"},
		"23 shared":                       {"100.100.100.100", "dest_private", "shared address space"},
		"23 loopback":                     {"127.0.0.1", "dest_private", "loopback"},
		"25 mapped loopback":              {"::ffff:127.0.0.1", "dest_private", "loopback"},
		"25 mapped private":               {"::ffff:10.0.0.1", "dest_private", "private-use"},
		"26 translated private":           {"64:ff9b::c0a8:0101", "dest_private", "IPv4-IPv6 translation"},
		"28 fc00":                         {"fc00::1", "dest_private", "unique-local"},
		"28 fd00":                         {"fd00::1", "dest_private", "unique-local"},
		"29 link-local":                   {"fe80::1", "dest_private", "link-local"},
		"29 site-local":                   {"fec0::1", "dest_private", "deprecated site-local"},
		"29 multicast":                    {"ff02::1", "dest_private", "multicast"},
		"29 loopback":                     {"::1", "dest_private", "loopback"},
		"29 unspecified":                  {"::", "dest_private", "unspecified"},
		"33 own public address":           {"198.41.0.4", "dest_self", "own address"},
		"metadata":                        {"169.254.169.254", "dest_metadata", "cloud metadata"},
		"6to4 of a private address":       {"2002:a00:1::1", "dest_private", "6to4"},
		"ISATAP under a public prefix":    {"2001:4860::200:5efe:a00:1", "dest_private", "ISATAP"},
		"documentation":                   {"203.0.113.9", "dest_private", "documentation (TEST-NET-3)"},
		"IPv4-compatible of a public one": {"::8.8.8.8", "dest_private", "IPv4-compatible"},
	}
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.local.Store(policy.NewLocalSet([]netip.Addr{netip.MustParseAddr("198.41.0.4")}, nil))
			w.stub.does(records(address("a.example.com.", c.ip)))
			got := w.ask(std, qe("a.example.com", typeFor(c.ip)).msg())
			assert.Equal(t, rcodeNoError, got.Rcode)
			assert.Empty(t, got.Answer)
			require.NotNil(t, soaOf(got))
			ede, _ := edeOf(got)
			assert.Equal(t, 15, ede)
			require.Equal(t, []string{c.reason}, w.reasons())
			e := w.last()
			assert.Equal(t, c.matched, e.MatchedRange)
			require.Len(t, e.Resolved, 1)
			assert.Equal(t, netip.MustParseAddr(c.ip).Unmap().String(), e.Resolved[0].IP)
			assert.Equal(t, "a.example.com", e.Dest)
			assert.Nil(t, e.Rule, "the guard decided")
			assert.Equal(t, "builtin", e.Layer)
			assert.NotContains(t, got.String(), c.ip, "a refused address is not disclosed")
		})
	}
	for _, ip := range []string{
		"11.0.0.0", "9.255.255.255", "172.32.0.0", "1.0.0.0", "100.128.0.0", "100.63.255.255", "128.0.0.0",
		"126.255.255.255", "192.167.255.255", "223.255.255.255", "2001:4860:4860::8888", "2003::1", "2a00::1",
	} {
		t.Run("just outside "+ip, func(t *testing.T) {
			row{
				ask: q("a.example.com", typeFor(ip)), upstream: records(address("a.example.com.", ip)),
				answers: []string{dns.TypeToString[typeFor(ip)] + " " + ip},
			}.run(t)
		})
	}
}

func typeFor(ip string) uint16 {
	if strings.Contains(ip, ":") {
		return dns.TypeAAAA
	}
	return dns.TypeA
}

func address(owner, ip string) string {
	return fmt.Sprintf("%s 60 IN %s %s", owner, dns.TypeToString[typeFor(ip)], ip)
}

// Rows about what else an answer has.
func TestCatalogueAnswers(t *testing.T) {
	loop := records("a.example.com. 60 IN CNAME b.example.com.", "b.example.com. 60 IN CNAME a.example.com.")
	var long []string
	for i := range 40 {
		long = append(long, fmt.Sprintf("%s 60 IN CNAME c%d.example.com.", map[bool]string{true: "a.example.com.", false: fmt.Sprintf("c%d.example.com.", i)}[i == 0], i+1))
	}
	long = append(long, "c40.example.com. 60 IN A 1.1.1.1")
	a := qe("a.example.com", dns.TypeA)
	rows := map[string]row{
		"21 public and loopback": {
			ask: a, upstream: records("a.example.com. 60 IN A 8.8.8.8", "a.example.com. 60 IN A 127.0.0.1"),
			rcode: nodata, ede: 15, reason: "dest_private", matched: "loopback",
		},
		"36 chain over another zone": {
			ask: a, upstream: records("a.example.com. 60 IN CNAME cdn.other.test.", "cdn.other.test. 60 IN A 8.8.8.8"),
			answers: []string{"CNAME cdn.other.test.", "A 8.8.8.8"},
		},
		"36 chain, case of the target": {
			ask: a, upstream: records("A.example.com. 60 IN CNAME CDN.Other.TEST.", "cdn.OTHER.test. 60 IN A 8.8.8.8"),
			answers: []string{"CNAME cdn.other.test.", "A 8.8.8.8"},
		},
		"chain by DNAME": {
			ask: a, upstream: records("example.com. 60 IN DNAME other.test.", "a.other.test. 60 IN A 8.8.8.8"),
			answers: []string{"CNAME a.other.test.", "A 8.8.8.8"},
		},
		"DNAME of the name itself is none": {
			ask: a, upstream: records("a.example.com. 60 IN DNAME other.test.", "other.test. 60 IN A 8.8.8.8"), rcode: nodata,
		},
		"chain to a private address": {
			ask: a, upstream: records("a.example.com. 60 IN CNAME cdn.other.test.", "cdn.other.test. 60 IN A 10.0.0.1"),
			rcode: nodata, ede: 15, reason: "dest_private", matched: "private-use",
		},
		"chain does not carry a grant": {
			ask: a, upstream: records("a.example.com. 60 IN CNAME cache.corp.example.", "cache.corp.example. 60 IN A 10.20.0.1"),
			rcode: nodata, ede: 15, reason: "dest_private", matched: "private-use",
		},
		"38 chain to localhost":    {ask: a, upstream: records("a.example.com. 60 IN CNAME localhost."), rcode: nodata, ede: 15, reason: "cname_not_allowed"},
		"38 chain to a label":      {ask: a, upstream: records("a.example.com. 60 IN CNAME router."), rcode: nodata, ede: 15, reason: "cname_not_allowed"},
		"38 chain to .internal":    {ask: a, upstream: records("a.example.com. 60 IN CNAME db.internal."), rcode: nodata, ede: 15, reason: "cname_not_allowed"},
		"38 chain to metadata":     {ask: a, upstream: records("a.example.com. 60 IN CNAME metadata.google.internal."), rcode: nodata, ede: 15, reason: "cname_not_allowed"},
		"38 chain to no host name": {ask: a, upstream: records(`a.example.com. 60 IN CNAME a\.b.test.`), rcode: nodata, ede: 15, reason: "cname_not_allowed"},
		"38 in the middle": {
			ask: a, upstream: records("a.example.com. 60 IN CNAME localhost.", "localhost. 60 IN CNAME b.test.", "b.test. 60 IN A 8.8.8.8"),
			rcode: nodata, ede: 15, reason: "cname_not_allowed",
		},
		"local name by grant, local target": {
			ask: q("db.internal", dns.TypeA), upstream: records("db.internal. 60 IN CNAME db1.internal.", "db1.internal. 60 IN A 10.20.0.9"),
			answers: []string{"CNAME db1.internal.", "A 10.20.0.9"},
		},
		"local name by grant, metadata target": {
			ask: qe("db.internal", dns.TypeA), upstream: records("db.internal. 60 IN CNAME metadata.google.internal.", "metadata.google.internal. 60 IN A 10.20.0.9"),
			rcode: nodata, ede: 15, reason: "cname_not_allowed",
		},
		"grant":                 {ask: q("cache.corp.example", dns.TypeA), upstream: records("cache.corp.example. 60 IN A 10.20.255.255"), answers: []string{"A 10.20.255.255"}},
		"outside the grant":     {ask: qe("cache.corp.example", dns.TypeA), upstream: records("cache.corp.example. 60 IN A 10.21.0.0"), rcode: nodata, ede: 15, reason: "dest_private", matched: "private-use"},
		"77 localhost by grant": {ask: q("localhost", dns.TypeA), answers: []string{"A 127.0.0.1"}},
		"77 localhost, AAAA":    {ask: q("localhost", dns.TypeAAAA), answers: []string{"AAAA ::1"}},
		"40 loop":               {ask: a, upstream: loop, rcode: rcodeServFail, ede: 24, reason: "dns_error"},
		"40 alias of itself":    {ask: a, upstream: records("a.example.com. 60 IN CNAME a.example.com."), rcode: rcodeServFail, ede: 24, reason: "dns_error"},
		"40 chain of 40":        {ask: a, upstream: records(long...), rcode: rcodeServFail, ede: 24, reason: "dns_error"},
		"41 unrelated owner":    {ask: a, upstream: records("a.example.com. 60 IN A 8.8.8.8", "b.example.com. 60 IN A 9.9.9.9", "www.bank.test. 60 IN A 6.6.6.6"), answers: []string{"A 8.8.8.8"}},
		"41 unrelated private":  {ask: a, upstream: records("a.example.com. 60 IN A 8.8.8.8", "b.example.com. 60 IN A 10.0.0.1"), answers: []string{"A 8.8.8.8"}},
		"42 dangling alias":     {ask: a, upstream: records("a.example.com. 60 IN CNAME gone.test."), rcode: rcodeNoError, answers: []string{"CNAME gone.test."}},
		"nothing there":         {ask: a, upstream: rcode(rcodeNoError, "example.com. 60 IN SOA ns. m. 1 2 3 4 60"), rcode: nodata},
		"74 no such name":       {ask: a, upstream: rcode(rcodeNXDomain, "example.com. 7200 IN SOA ns. m. 1 2 3 4 3600"), rcode: rcodeNXDomain},
		"74 without SOA":        {ask: a, upstream: rcode(rcodeNXDomain), rcode: rcodeNXDomain},
		"30 no data":            {ask: a, upstream: raw(records("a.example.com. 60 IN A 8.8.8.8"), withoutData), rcode: nodata},
		"public mapped in AAAA": {ask: q("a.example.com", dns.TypeAAAA), upstream: records("a.example.com. 60 IN AAAA ::ffff:8.8.8.8"), rcode: nodata},
		"twice the same":        {ask: a, upstream: records("a.example.com. 60 IN A 8.8.8.8", "a.example.com. 60 IN A 8.8.8.8"), answers: []string{"A 8.8.8.8"}},
		"TTL 0":                 {ask: a, upstream: records("a.example.com. 0 IN A 8.8.8.8"), answers: []string{"A 8.8.8.8"}},
		"TTL of a year":         {ask: a, upstream: records("a.example.com. 31536000 IN A 8.8.8.8"), answers: []string{"A 8.8.8.8"}},
		"TTL with the top bit":  {ask: a, upstream: records("a.example.com. 2147483648 IN A 8.8.8.8"), answers: []string{"A 8.8.8.8"}},
		"class CH":              {ask: a, upstream: records("a.example.com. 60 CH A 8.8.8.8"), rcode: nodata},
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "42") {
				danglingAlias(t, r)
				return
			}
			r.run(t)
		})
	}
}

// danglingAlias has both a record and a SOA, which no other row has.
func danglingAlias(t *testing.T, r row) {
	w := newWorld(t)
	w.stub.does(r.upstream)
	got := w.ask(std, r.ask.msg())
	assert.Equal(t, r.answers, answers3(got))
	if soa := soaOf(got); assert.NotNil(t, soa) {
		assert.Equal(t, "gone.test.", soa.Hdr.Name)
		assert.Equal(t, uint32(5), soa.Hdr.Ttl)
	}
	assert.Empty(t, w.rec.Events())
}

// withoutData cuts the four bytes of the last A record, which ends the message
// but for an OPT record.
func withoutData(m []byte) []byte {
	end := len(m)
	if binary.BigEndian.Uint16(m[10:]) == 1 {
		end -= 11
	}
	out := append([]byte(nil), m[:end-4]...)
	binary.BigEndian.PutUint16(out[len(out)-2:], 0)
	return append(out, m[end:]...)
}
