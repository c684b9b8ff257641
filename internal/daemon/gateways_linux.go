package daemon

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
)

// gateways returns the default gateways of all routing tables that /proc shows.
// A table that can't be read gives none: the address table still refuses
// private ones.
func gateways() []netip.Addr {
	return append(readRoutes("/proc/net/route", gateway4), readRoutes("/proc/net/ipv6_route", gateway6)...)
}

func readRoutes(path string, parse func([]string) (netip.Addr, bool)) []netip.Addr {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var out []netip.Addr
	for s := bufio.NewScanner(f); s.Scan(); {
		if a, ok := parse(strings.Fields(s.Text())); ok {
			out = append(out, a)
		}
	}
	return out
}

// gateway4 reads a line of /proc/net/route: interface, destination and gateway
// as hexadecimal numbers in the machine's byte order.
func gateway4(fields []string) (netip.Addr, bool) {
	if len(fields) < 3 || fields[1] != "00000000" {
		return netip.Addr{}, false
	}
	b, err := hex.DecodeString(fields[2])
	if err != nil || len(b) != 4 {
		return netip.Addr{}, false
	}
	var a [4]byte
	binary.NativeEndian.PutUint32(a[:], binary.BigEndian.Uint32(b))
	addr := netip.AddrFrom4(a)
	return addr, !addr.IsUnspecified()
}

// gateway6 reads a line of /proc/net/ipv6_route: destination, its length,
// source, its length, next hop.
func gateway6(fields []string) (netip.Addr, bool) {
	if len(fields) < 5 || fields[1] != "00" {
		return netip.Addr{}, false
	}
	b, err := hex.DecodeString(fields[4])
	if err != nil || len(b) != 16 {
		return netip.Addr{}, false
	}
	addr := netip.AddrFrom16([16]byte(b))
	return addr, !addr.IsUnspecified()
}
