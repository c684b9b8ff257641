package policy_test

import (
	"net/netip"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
)

// What people should be able to look up in one place.
func TestClassifyAddr(t *testing.T) {
	const private, metadata = policy.ReasonDestPrivate, policy.ReasonDestMetadata
	for in, want := range map[string]struct {
		name   string
		reason policy.Reason
	}{
		"8.8.8.8":                              {"public", ""},
		"93.184.216.34":                        {"public", ""},
		"2606:4700::1111":                      {"public", ""},
		"2001:200::":                           {"public", ""},
		"2003::":                               {"public", ""},
		"::ffff:8.8.8.8":                       {"public", ""},
		"100.63.255.255":                       {"public", ""},
		"100.64.0.0":                           {"shared address space", private},
		"168.63.129.16":                        {"Azure WireServer", metadata},
		"168.63.129.17":                        {"public", ""},
		"255.255.255.255":                      {"limited broadcast", private},
		"255.255.255.254":                      {"reserved", private},
		"192.0.0.192":                          {"Oracle classic metadata", metadata},
		"192.0.0.193":                          {"IETF protocol assignments", private},
		"::ffff:10.0.0.1":                      {"private-use", private},
		"::10.0.0.1":                           {"IPv4-compatible", private},
		"::ffff:0:10.0.0.1":                    {"IPv4-translated", private},
		"64:ff9b::808:808":                     {"IPv4-IPv6 translation", private},
		"1fff:ffff:ffff:ffff::":                {"unallocated", private},
		"2000::":                               {"public", ""},
		"3ffe::":                               {"public", ""},
		"3fff:1000::":                          {"public", ""},
		"4000::":                               {"unallocated", private},
		"2001:470::5efe:10.0.0.1":              {"ISATAP", private},
		"2001:470::200:5efe:8.8.8.8":           {"ISATAP", private},
		"2001:470::100:5efe:8.8.8.8":           {"public", ""},
		"2001:470::5eff:10.0.0.1":              {"public", ""},
		"fe80::5efe:10.0.0.1":                  {"link-local", private},
		"::a9fe:a9fe":                          {"IPv4-compatible", metadata},
		"64:ff9b::a9fe:a9fe":                   {"IPv4-IPv6 translation", metadata},
		"2002:a9fe:a9fe::1":                    {"6to4", metadata},
		"2002:808:808::a9fe:a9fe":              {"6to4", private},
		"2001:0:4136:e378:8000:63bf:5601:5601": {"Teredo", metadata},
		"2001:470::5efe:a9fe:a9fe":             {"ISATAP", metadata},
		"2001:470::a9fe:a9fe":                  {"public", ""},
		"fd12::a9fe:a9fe":                      {"unique-local", metadata},
		"fd12::1":                              {"unique-local", private},
	} {
		t.Run(in, func(t *testing.T) {
			c := policy.ClassifyAddr(netip.MustParseAddr(in))
			assert.Equal(t, want.name, c.Range)
			assert.Equal(t, want.reason, c.Reason)
			assert.Equal(t, want.reason == "", c.Public())
		})
	}
}

// What is not a plain address is refused: nothing can be said of it.
func TestClassifyNoAddress(t *testing.T) {
	for name, a := range map[string]netip.Addr{
		"zero":                 {},
		"link-local with zone": netip.MustParseAddr("fe80::1%eth0"),
		"public with zone":     netip.MustParseAddr("2606:4700::1111%eth0"),
		"mapped with zone":     netip.MustParseAddr("::ffff:8.8.8.8%1"),
	} {
		t.Run(name, func(t *testing.T) {
			c := policy.ClassifyAddr(a)
			assert.False(t, c.Public())
			assert.Equal(t, policy.ReasonDestPrivate, c.Reason)
			assert.Equal(t, "invalid", c.Range)
		})
	}
	var zero policy.AddrClass
	assert.False(t, zero.Public())
}
