package policy

import (
	"encoding/hex"
	"math/big"
	"net/netip"
	"strings"
)

// oracleRanges lists the special-purpose ranges by their first and last address,
// from the IANA registries of October 2025 and the pages of the providers. It
// shares nothing with the address table: the narrowest range decides, not the
// first, and addresses are numbers. "!" marks metadata services.
const oracleRanges = `
0.0.0.0         0.255.255.255    this network
10.0.0.0        10.255.255.255   private-use
100.64.0.0      100.127.255.255  shared address space
100.88.222.5    100.88.222.5     !Tencent metadata
100.100.100.200 100.100.100.200  !Alibaba metadata
127.0.0.0       127.255.255.255  loopback
168.63.129.16   168.63.129.16    !Azure WireServer
169.254.0.0     169.254.255.255  link-local
169.254.0.23    169.254.0.23     !Tencent metadata
169.254.169.123 169.254.169.123  !AWS time service
169.254.169.250 169.254.169.250  !cloud agent endpoint
169.254.169.253 169.254.169.253  !AWS VPC resolver
169.254.169.254 169.254.169.254  !cloud metadata
169.254.170.2   169.254.170.2    !AWS ECS credentials
169.254.170.23  169.254.170.23   !AWS EKS pod identity
172.16.0.0      172.31.255.255   private-use
192.0.0.0       192.0.0.255      IETF protocol assignments
192.0.0.192     192.0.0.192      !Oracle classic metadata
192.0.2.0       192.0.2.255      documentation (TEST-NET-1)
192.31.196.0    192.31.196.255   AS112-v4
192.52.193.0    192.52.193.255   AMT
192.88.99.0     192.88.99.255    deprecated 6to4 relay anycast
192.168.0.0     192.168.255.255  private-use
192.168.169.254 192.168.169.254  !metadata look-alike
192.175.48.0    192.175.48.255   direct delegation AS112 service
198.18.0.0      198.19.255.255   benchmarking
198.51.100.0    198.51.100.255   documentation (TEST-NET-2)
203.0.113.0     203.0.113.255    documentation (TEST-NET-3)
224.0.0.0       239.255.255.255  multicast
240.0.0.0       255.255.255.255  reserved
255.255.255.255 255.255.255.255  limited broadcast
::              ::               unspecified
::              ::ffff:ffff      IPv4-compatible
::1             ::1              loopback
::ffff:0:0:0    ::ffff:0:ffff:ffff IPv4-translated
64:ff9b::       64:ff9b::ffff:ffff IPv4-IPv6 translation
64:ff9b:1::     64:ff9b:1:ffff:ffff:ffff:ffff:ffff local-use IPv4-IPv6 translation
100::           100::ffff:ffff:ffff:ffff discard-only
100:0:0:1::     100:0:0:1:ffff:ffff:ffff:ffff dummy prefix
2001::          2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff IETF protocol assignments
2001::          2001:0:ffff:ffff:ffff:ffff:ffff:ffff Teredo
2001:2::        2001:2:0:ffff:ffff:ffff:ffff:ffff benchmarking
2001:3::        2001:3:ffff:ffff:ffff:ffff:ffff:ffff AMT
2001:4:112::    2001:4:112:ffff:ffff:ffff:ffff:ffff AS112-v6
2001:10::       2001:1f:ffff:ffff:ffff:ffff:ffff:ffff deprecated ORCHID
2001:20::       2001:2f:ffff:ffff:ffff:ffff:ffff:ffff ORCHIDv2
2001:30::       2001:3f:ffff:ffff:ffff:ffff:ffff:ffff drone remote ID
2001:db8::      2001:db8:ffff:ffff:ffff:ffff:ffff:ffff documentation
2002::          2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff 6to4
2620:4f:8000::  2620:4f:8000:ffff:ffff:ffff:ffff:ffff direct delegation AS112 service
3fff::          3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff documentation
5f00::          5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff segment routing SIDs
fc00::          fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff unique-local
fd00:42::42     fd00:42::42      !Scaleway metadata
fd00:100::100:200 fd00:100::100:200 !Alibaba metadata
fd00:a9fe:a9fe::1 fd00:a9fe:a9fe::1 !metadata look-alike
fd00:c1::a9fe:a9fe fd00:c1::a9fe:a9fe !Oracle metadata
fd00:ec2::      fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff !AWS metadata
fd20:ce::254    fd20:ce::254     !Google Cloud metadata
fe80::          febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff link-local
fec0::          feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff deprecated site-local
ff00::          ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff multicast
`

type oracleRange struct {
	first, last *big.Int
	name        string
	metadata    bool
	four        bool
}

var oracleTable = func() (table []oracleRange) {
	for line := range strings.Lines(oracleRanges) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		name := strings.Join(f[2:], " ")
		table = append(table, oracleRange{
			first: oracleNumber(f[0]), last: oracleNumber(f[1]),
			name: strings.TrimPrefix(name, "!"), metadata: strings.HasPrefix(name, "!"), four: !strings.Contains(f[0], ":"),
		})
	}
	return table
}()

func oracleNumber(s string) *big.Int { return new(big.Int).SetBytes(netip.MustParseAddr(s).AsSlice()) }

// oracle says what ClassifyAddr should say, slowly: the range, and whether the
// address is public, special or leads to a metadata service.
func oracle(a netip.Addr) (name string, reason Reason) {
	if !a.IsValid() || strings.Contains(a.String(), "%") {
		return "invalid", ReasonDestPrivate
	}
	digits := hex.EncodeToString(a.AsSlice())
	if rest, mapped := strings.CutPrefix(digits, "00000000000000000000ffff"); mapped && len(digits) == 32 {
		digits = rest
	}
	if found := oracleFind(digits); found != nil {
		if found.metadata || oracleLeadsToMetadata(digits) {
			return found.name, ReasonDestMetadata
		}
		return found.name, ReasonDestPrivate
	}
	switch {
	case len(digits) == 8:
		return "public", ""
	case digits[0] != '2' && digits[0] != '3':
		return "unallocated", ReasonDestPrivate
	case digits[16:24] != "00005efe" && digits[16:24] != "02005efe":
		return "public", ""
	case oracleLeadsToMetadata(digits):
		return "ISATAP", ReasonDestMetadata
	default:
		return "ISATAP", ReasonDestPrivate
	}
}

// oracleFind is the narrowest range that holds the address.
func oracleFind(digits string) *oracleRange {
	number, _ := new(big.Int).SetString(digits, 16)
	var best *oracleRange
	var bestSize *big.Int
	for i := range oracleTable {
		r := &oracleTable[i]
		if r.four != (len(digits) == 8) || number.Cmp(r.first) < 0 || number.Cmp(r.last) > 0 {
			continue
		}
		if size := new(big.Int).Sub(r.last, r.first); best == nil || size.Cmp(bestSize) < 0 {
			best, bestSize = r, size
		}
	}
	return best
}

// oracleLeadsToMetadata looks at the IPv4 address inside an IPv6 one: behind
// the prefix in 6to4, inverted at the end in Teredo, at the end elsewhere.
func oracleLeadsToMetadata(digits string) bool {
	if len(digits) == 8 {
		return false
	}
	inner := digits[24:]
	switch {
	case strings.HasPrefix(digits, "2002"):
		inner = digits[4:12]
	case strings.HasPrefix(digits, "20010000"):
		n, _ := new(big.Int).SetString(inner, 16)
		inner = hex.EncodeToString(new(big.Int).Xor(n, big.NewInt(0xffffffff)).FillBytes(make([]byte, 4)))
	}
	found := oracleFind(inner)
	return found != nil && found.metadata
}
