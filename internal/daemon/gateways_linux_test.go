package daemon

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// kernelHex writes an IPv4 address as /proc/net/route does: as a number in the
// machine's byte order.
func kernelHex(s string) string {
	a := netip.MustParseAddr(s).As4()
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], binary.NativeEndian.Uint32(a[:]))
	return strings.ToUpper(hex.EncodeToString(b[:]))
}

func hex6(s string) string {
	a := netip.MustParseAddr(s).As16()
	return hex.EncodeToString(a[:])
}

func TestGateway4(t *testing.T) {
	for name, tc := range map[string]struct{ line, want string }{
		"default route":                  {"eth0 00000000 " + kernelHex("192.0.2.1") + " 0003 0 0 100 00000000 0 0 0", "192.0.2.1"},
		"half of the default, as of VPN": {"tun0 00000000 " + kernelHex("198.51.100.1") + " 0003 0 0 0 00000080 0 0 0", "198.51.100.1"},
		"default without a gateway":      {"tun0 00000000 00000000 0001 0 0 50 00000000 0 0 0", ""},
		"route to a network":             {"eth0 " + kernelHex("192.0.2.0") + " 00000000 0001 0 0 100 00FFFFFF 0 0 0", ""},
		"network behind a router":        {"eth0 " + kernelHex("203.0.113.0") + " " + kernelHex("192.0.2.9") + " 0003 0 0 100 00FFFFFF 0 0 0", ""},
		"head of the table":              {"Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT", ""},
		"nothing":                        {"", ""},
		"too short":                      {"eth0 00000000", ""},
		"no number":                      {"eth0 00000000 zzzzzzzz", ""},
		"number too long":                {"eth0 00000000 0102030405", ""},
		"number too short":               {"eth0 00000000 010203", ""},
	} {
		t.Run(name, func(t *testing.T) { wantGateway(t, gateway4, tc.line, tc.want) })
	}
}

func TestGateway6(t *testing.T) {
	zero := hex6("::")
	for name, tc := range map[string]struct{ line, want string }{
		"default route":             {zero + " 00 " + zero + " 00 " + hex6("fe80::1") + " 00000400 00000001 00000000 00000003 eth0", "fe80::1"},
		"global gateway":            {zero + " 00 " + zero + " 00 " + hex6("2001:db8::1") + " 00000400 0 0 0 eth0", "2001:db8::1"},
		"default without a gateway": {zero + " 00 " + zero + " 00 " + zero + " ffffffff 0 0 00200200 lo", ""},
		"route to a network":        {hex6("2001:db8::") + " 20 " + zero + " 00 " + hex6("fe80::1") + " 00000400 0 0 0 eth0", ""},
		"route to a host":           {hex6("::1") + " 80 " + zero + " 00 " + zero + " 0 0 0 0 lo", ""},
		"nothing":                   {"", ""},
		"too short":                 {zero + " 00 " + zero + " 00", ""},
		"no number":                 {zero + " 00 " + zero + " 00 " + strings.Repeat("z", 32), ""},
		"number too short":          {zero + " 00 " + zero + " 00 " + zero[2:], ""},
	} {
		t.Run(name, func(t *testing.T) { wantGateway(t, gateway6, tc.line, tc.want) })
	}
}

func wantGateway(t *testing.T, parse func([]string) (netip.Addr, bool), line, want string) {
	t.Helper()
	got, ok := parse(strings.Fields(line))
	if want == "" {
		assert.False(t, ok, got)
		return
	}
	assert.True(t, ok)
	assert.Equal(t, want, got.String())
}

func TestReadRoutes(t *testing.T) {
	table := filepath.Join(t.TempDir(), "route")
	write(t, table, "Iface\tDestination\tGateway\n"+
		"eth0\t00000000\t"+kernelHex("192.0.2.1")+"\t0003\n"+
		"eth0\t"+kernelHex("192.0.2.0")+"\t00000000\t0001\n\n"+
		"wlan0\t00000000\t"+kernelHex("198.51.100.1")+"\t0003\n")
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")}, readRoutes(table, gateway4))
	assert.Empty(t, readRoutes(filepath.Join(t.TempDir(), "none"), gateway4), "a table that is not there has no gateways")
}
