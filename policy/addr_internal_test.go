package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every row says where it comes from, and the first match is the narrowest.
func TestAddressTable(t *testing.T) {
	metadata := true // these rows stand first
	for i, r := range specialRanges {
		name := r.prefix.String()
		assert.Equal(t, r.prefix.Masked(), r.prefix, name)
		assert.NotEmpty(t, r.name, name)
		assert.False(t, r.prefix.Addr().Is4In6(), name)
		if r.metadata {
			assert.True(t, metadata, "%s stands behind a row that is no metadata service", name)
			assert.Equal(t, never, r.override, name)
		} else {
			metadata = false
			assert.Contains(t, r.rfc, "RFC ", name)
		}
		for _, later := range specialRanges[i+1:] {
			assert.False(t, later.prefix.Overlaps(r.prefix) && later.prefix.Bits() >= r.prefix.Bits(),
				"%s hides %s behind it", name, later.prefix)
		}
	}
	assert.Len(t, specialRanges4, 31)
	assert.Equal(t, len(specialRanges), len(specialRanges4)+len(specialRanges6))
}

// Of the ranges that a rule may open, each is one by intent.
func TestOpenableRanges(t *testing.T) {
	open := map[string]override{}
	for _, r := range specialRanges {
		if r.override != never {
			open[r.prefix.String()] = r.override
		}
	}
	assert.Equal(t, map[string]override{
		"10.0.0.0/8": byRule, "172.16.0.0/12": byRule, "192.168.0.0/16": byRule, "100.64.0.0/10": byRule,
		"192.0.2.0/24": byRule, "198.51.100.0/24": byRule, "203.0.113.0/24": byRule, "198.18.0.0/15": byRule,
		"fc00::/7": byRule, "127.0.0.0/8": exactOnly, "::1/128": exactOnly,
	}, open)
}

// The first and last address of each row and its neighbours outside, in plain
// and in IPv4-mapped form, are what the oracle says.
func TestRowBoundaries(t *testing.T) {
	for _, r := range specialRanges {
		first, last := r.prefix.Addr(), lastAddr(r.prefix)
		for name, a := range map[string]netip.Addr{
			"first": first, "second": first.Next(), "last": last, "last but one": last.Prev(),
			"before": first.Prev(), "behind": last.Next(),
		} {
			if !a.IsValid() {
				continue // there is nothing before 0.0.0.0 and behind ffff:…
			}
			t.Run(fmt.Sprintf("%s %s", r.prefix, name), func(t *testing.T) {
				compareWithOracle(t, a)
				if r.prefix.Contains(a) {
					assert.NotEmpty(t, ClassifyAddr(a).Reason)
					assert.False(t, ClassifyAddr(a).Public())
				}
				if a.Is4() {
					mapped := netip.AddrFrom16(a.As16())
					require.True(t, mapped.Is4In6())
					assert.Equal(t, ClassifyAddr(a), ClassifyAddr(mapped))
				}
			})
		}
	}
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func compareWithOracle(t require.TestingT, a netip.Addr) {
	c := ClassifyAddr(a)
	name, reason := oracle(a)
	require.Equal(t, name, c.Range, a.String())
	require.Equal(t, reason, c.Reason, a.String())
	require.Equal(t, reason == "", c.Public(), a.String())
	if c.Reason == ReasonDestMetadata {
		require.Equal(t, never, c.override, a.String())
	}
}

// Random addresses, half of them near the ranges.
func TestRandomAddresses(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		var b [16]byte
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		near := specialRanges[rnd.IntN(len(specialRanges))].prefix
		switch base := near.Addr().AsSlice(); rnd.IntN(4) {
		case 0:
			compareWithOracle(t, netip.AddrFrom4([4]byte(b[:4])))
		case 1:
			compareWithOracle(t, netip.AddrFrom16(b))
		default: // the first bytes of a row
			copy(b[:], base[:rnd.IntN(len(base)+1)])
			a, _ := netip.AddrFromSlice(b[:len(base)])
			compareWithOracle(t, a)
		}
	}
}

func FuzzClassifyAddr(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "::ffff:a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:470::200:5efe:a9fe:a9fe", "4000::1", "::"} {
		f.Add(netip.MustParseAddr(s).AsSlice(), "")
	}
	f.Add([]byte{}, "")
	f.Add(make([]byte, 16), "eth0")
	f.Fuzz(func(t *testing.T, b []byte, zone string) {
		a, _ := netip.AddrFromSlice(b)
		compareWithOracle(t, a.WithZone(zone))
	})
}
