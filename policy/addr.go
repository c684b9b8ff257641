package policy

import (
	"encoding/binary"
	"net/netip"
)

// override says whether a rule can open a special-purpose range.
type override int

const (
	never override = iota
	// byRule: a rule that names the destination and the addresses.
	byRule
	// exactOnly: a rule that names one single address and its ports (loopback).
	exactOnly
)

// specialRange is one row of the address table.
type specialRange struct {
	prefix   netip.Prefix
	name     string
	rfc      string
	override override
	metadata bool
}

// RangePublic is the range name of an address that no row of the table covers.
const RangePublic = "public"

// specialRanges is the address table: the two IANA special-purpose address
// registries (IPv4 and IPv6, as of October 2025), multicast, deprecated ranges
// and the well-known addresses of cloud metadata services. The first row that
// matches decides, so the single metadata addresses stand first. IPv6 space
// outside 2000::/3 is refused even where no row names it.
var specialRanges = []specialRange{
	// Metadata services. No rule opens them.
	meta("169.254.169.254/32", "cloud metadata"),
	meta("169.254.170.2/32", "AWS ECS credentials"),
	meta("169.254.170.23/32", "AWS EKS pod identity"),
	meta("169.254.169.253/32", "AWS VPC resolver"),
	meta("169.254.169.123/32", "AWS time service"),
	meta("169.254.169.250/32", "cloud agent endpoint"),
	meta("169.254.0.23/32", "Tencent metadata"),
	meta("100.88.222.5/32", "Tencent metadata"),
	meta("100.100.100.200/32", "Alibaba metadata"),
	meta("168.63.129.16/32", "Azure WireServer"),
	meta("192.0.0.192/32", "Oracle classic metadata"),
	meta("192.168.169.254/32", "metadata look-alike"),
	meta("fd00:ec2::/32", "AWS metadata"),
	meta("fd20:ce::254/128", "Google Cloud metadata"),
	meta("fd00:c1::a9fe:a9fe/128", "Oracle metadata"),
	meta("fd00:42::42/128", "Scaleway metadata"),
	meta("fd00:a9fe:a9fe::1/128", "metadata look-alike"),
	meta("fd00:100::100:200/128", "Alibaba metadata"),

	// IPv4.
	row("0.0.0.0/8", "this network", "RFC 791 section 3.2", never),
	row("10.0.0.0/8", "private-use", "RFC 1918", byRule),
	row("100.64.0.0/10", "shared address space", "RFC 6598", byRule),
	row("127.0.0.0/8", "loopback", "RFC 1122 section 3.2.1.3", exactOnly),
	row("169.254.0.0/16", "link-local", "RFC 3927", never),
	row("172.16.0.0/12", "private-use", "RFC 1918", byRule),
	row("192.0.0.0/24", "IETF protocol assignments", "RFC 6890 section 2.1", never),
	row("192.0.2.0/24", "documentation (TEST-NET-1)", "RFC 5737", byRule),
	row("192.31.196.0/24", "AS112-v4", "RFC 7535", never),
	row("192.52.193.0/24", "AMT", "RFC 7450", never),
	row("192.88.99.0/24", "deprecated 6to4 relay anycast", "RFC 7526", never),
	row("192.168.0.0/16", "private-use", "RFC 1918", byRule),
	row("192.175.48.0/24", "direct delegation AS112 service", "RFC 7534", never),
	row("198.18.0.0/15", "benchmarking", "RFC 2544", byRule),
	row("198.51.100.0/24", "documentation (TEST-NET-2)", "RFC 5737", byRule),
	row("203.0.113.0/24", "documentation (TEST-NET-3)", "RFC 5737", byRule),
	row("224.0.0.0/4", "multicast", "RFC 5771", never),
	row("255.255.255.255/32", "limited broadcast", "RFC 8190", never),
	row("240.0.0.0/4", "reserved", "RFC 1112 section 4", never),

	// IPv6 inside 2000::/3.
	row("2001::/32", "Teredo", "RFC 4380", never),
	row("2001:2::/48", "benchmarking", "RFC 5180", never),
	row("2001:3::/32", "AMT", "RFC 7450", never),
	row("2001:4:112::/48", "AS112-v6", "RFC 7535", never),
	row("2001:10::/28", "deprecated ORCHID", "RFC 4843", never),
	row("2001:20::/28", "ORCHIDv2", "RFC 7343", never),
	row("2001:30::/28", "drone remote ID", "RFC 9374", never),
	row("2001::/23", "IETF protocol assignments", "RFC 2928", never),
	row("2001:db8::/32", "documentation", "RFC 3849", never),
	row("2002::/16", "6to4", "RFC 3056", never),
	row("2620:4f:8000::/48", "direct delegation AS112 service", "RFC 7534", never),
	row("3fff::/20", "documentation", "RFC 9637", never),

	// IPv6 outside 2000::/3, named for the record.
	row("::1/128", "loopback", "RFC 4291", exactOnly),
	row("::/128", "unspecified", "RFC 4291", never),
	row("::ffff:0:0:0/96", "IPv4-translated", "RFC 2765", never),
	row("::/96", "IPv4-compatible", "RFC 4291 section 2.5.5.1", never),
	row("64:ff9b::/96", "IPv4-IPv6 translation", "RFC 6052", never),
	row("64:ff9b:1::/48", "local-use IPv4-IPv6 translation", "RFC 8215", never),
	row("100::/64", "discard-only", "RFC 6666", never),
	row("100:0:0:1::/64", "dummy prefix", "RFC 9780", never),
	row("5f00::/16", "segment routing SIDs", "RFC 9602", never),
	row("fc00::/7", "unique-local", "RFC 4193", byRule),
	row("fe80::/10", "link-local", "RFC 4291", never),
	row("fec0::/10", "deprecated site-local", "RFC 3879", never),
	row("ff00::/8", "multicast", "RFC 4291", never),
}

// specialRanges4 and specialRanges6 are the rows of one kind each, in order.
var specialRanges4, specialRanges6 = func() (v4, v6 []*specialRange) {
	for i := range specialRanges {
		if r := &specialRanges[i]; r.prefix.Addr().Is4() {
			v4 = append(v4, r)
		} else {
			v6 = append(v6, r)
		}
	}
	return v4, v6
}()

func row(prefix, name, rfc string, o override) specialRange {
	return specialRange{prefix: netip.MustParsePrefix(prefix), name: name, rfc: rfc, override: o}
}

func meta(prefix, name string) specialRange {
	return specialRange{prefix: netip.MustParsePrefix(prefix), name: name, metadata: true}
}

var globalUnicast = netip.MustParsePrefix("2000::/3")

// AddrClass is what the address table says of an address. The zero value is a
// refusal.
type AddrClass struct {
	// Range is the name of the special-purpose range, or [RangePublic].
	Range string
	// Reason is empty for a public address, else the guard's reason.
	Reason   Reason
	public   bool
	override override
}

// Public tells whether the address is outside every special-purpose range.
func (c AddrClass) Public() bool { return c.public }

// ClassifyAddr judges one address by the table alone; own addresses are judged
// by [LocalSet]. Anything that is not a plain address (the zero Addr, one with
// a zone) is refused. An IPv4-mapped address is judged as its IPv4 address; of
// other forms that embed one, a metadata address inside is named as such.
func ClassifyAddr(a netip.Addr) AddrClass {
	if !a.IsValid() || a.Zone() != "" {
		return AddrClass{Range: "invalid", Reason: ReasonDestPrivate}
	}
	a = a.Unmap()
	table := specialRanges6
	if a.Is4() {
		table = specialRanges4
	}
	for _, r := range table {
		if !r.prefix.Contains(a) {
			continue
		}
		c := AddrClass{Range: r.name, Reason: ReasonDestPrivate, override: r.override}
		if r.metadata || embedsMetadata(a) {
			c.Reason = ReasonDestMetadata
			c.override = never
		}
		return c
	}
	if a.Is4() {
		return AddrClass{Range: RangePublic, public: true}
	}
	if !globalUnicast.Contains(a) {
		return AddrClass{Range: "unallocated", Reason: ReasonDestPrivate}
	}
	if isISATAP(a) {
		c := AddrClass{Range: "ISATAP", Reason: ReasonDestPrivate}
		if embedsMetadata(a) {
			c.Reason = ReasonDestMetadata
		}
		return c
	}
	return AddrClass{Range: RangePublic, public: true}
}

// isISATAP tells whether the interface identifier is that of an ISATAP address,
// RFC 5214 section 6.1, under whatever prefix: such an address leads to the
// IPv4 address in its last four bytes.
func isISATAP(a netip.Addr) bool {
	b := a.As16()
	id := binary.BigEndian.Uint32(b[8:12])
	return id == 0x00005efe || id == 0x02005efe
}

// embedsMetadata tells whether an IPv6 address of a translation or tunnel range
// leads to the IPv4 address of a metadata service.
func embedsMetadata(a netip.Addr) bool {
	if !a.Is6() {
		return false
	}
	b := a.As16()
	var in [4]byte
	switch {
	case b[0] == 0x20 && b[1] == 0x02: // 6to4, RFC 3056 section 2
		copy(in[:], b[2:6])
	case b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0: // Teredo, RFC 4380 section 4
		for i := range in {
			in[i] = ^b[12+i]
		}
	default:
		copy(in[:], b[12:16])
	}
	v4 := netip.AddrFrom4(in)
	for _, r := range specialRanges4 {
		if !r.metadata {
			return false // the metadata rows stand first
		}
		if r.prefix.Contains(v4) {
			return true
		}
	}
	return false
}
