package dnsguard

import (
	"net/netip"
	"strings"

	"sluicegate/policy"
)

// special is a name that is answered here, whatever the rules say: it is never
// sent to an upstream.
type special struct {
	reason policy.Reason
	// nodata answers that there are no records instead of no such name.
	nodata bool
}

// specialZones are names, with all below them.
var specialZones = map[string]special{
	// Reverse zones tell the layout of the local network and can carry data out
	// in their labels; RFC 6303 lists the ones that must not leave a site.
	"in-addr.arpa": {reason: policy.ReasonSpecialUse},
	"ip6.arpa":     {reason: policy.ReasonSpecialUse},
	// Resolver discovery, RFC 9462 section 6.4: an answer would move clients to
	// another resolver. It is a name that exists.
	"resolver.arpa": {reason: policy.ReasonSpecialUse, nodata: true},
	// RFC 6761 section 6.4 and RFC 9476.
	"invalid": {reason: policy.ReasonSpecialUse},
	"alt":     {reason: policy.ReasonSpecialUse},
	// Names that are asked to learn whether encrypted DNS may be used: no such
	// name means no (Mozilla's and Apple's documentation).
	"use-application-dns.net": {reason: policy.ReasonCanaryName},
	"mask.icloud.com":         {reason: policy.ReasonCanaryName},
	"mask-h2.icloud.com":      {reason: policy.ReasonCanaryName},
	"mask-canary.icloud.com":  {reason: policy.ReasonCanaryName},
}

// specialName finds a canonical name in the tables.
func specialName(name string) (special, bool) {
	for rest, more := name, true; more; _, rest, more = strings.Cut(rest, ".") {
		if s, ok := specialZones[rest]; ok {
			return s, true
		}
	}
	return special{}, false
}

// ipv4Only is the name by which clients learn of IPv6 translation; RFC 8880
// section 7.1 wants it answered here: it has these addresses and no others.
const ipv4Only = "ipv4only.arpa"

func ipv4OnlyAnswer(kind uint16) *reply {
	if kind != typeA {
		return noData(minTTL)
	}
	return &reply{ttl: maxTTL, addrs: []netip.Addr{
		netip.AddrFrom4([4]byte{192, 0, 0, 170}), netip.AddrFrom4([4]byte{192, 0, 0, 171}),
	}}
}
