package policy_test

import (
	"bytes"
	"net/netip"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The set does not follow what it was made from, and a nil one knows nothing.
func TestLocalSetIsACopy(t *testing.T) {
	s := compile(t, oneProfile("network: open"))
	addrs := []netip.Addr{netip.MustParseAddr(publicAddress)}
	ports := []uint16{18001}
	set := policy.NewLocalSet(addrs, ports)
	addrs[0], ports[0] = netip.MustParseAddr("1.1.1.1"), 1
	r := tunnel(t, publicAddress+":443")
	assert.Equal(t, "allow open_network", verdict(s.Decide(r)))
	r.Local = set
	assert.Equal(t, "deny dest_self", verdict(s.Decide(r)))
	r = tunnel(t, "1.1.1.1:443")
	r.Local = set
	assert.Equal(t, "allow open_network", verdict(s.Decide(r)))
	r.Local = policy.NewLocalSet(nil, nil)
	assert.Equal(t, "allow open_network", verdict(s.Decide(r)))
}

// Addresses that are no addresses do no harm.
func TestLocalSetOfNothing(t *testing.T) {
	s := compile(t, oneProfile("network: open"))
	r := tunnel(t, "a.test:443", publicAddress)
	r.Local = policy.NewLocalSet([]netip.Addr{{}}, []uint16{0})
	assert.Equal(t, "allow open_network", verdict(s.Decide(r)))
	r.Addrs = []netip.Addr{{}}
	assert.Equal(t, "deny dest_private", verdict(s.Decide(r)))
}

// Programs look for these names below every search domain; no rule opens them,
// not even on an open network.
func TestDiscoveryNames(t *testing.T) {
	s := compile(t, oneProfile("network: open\nallow: [{host: wpad.example.com}, {host: isatap.example.com, resolves_to: [10.0.0.1]}]"))
	for _, name := range []string{"wpad", "wpad.example.com", "wpad.lan.example.com", "isatap.example.com"} {
		assert.Equal(t, "deny local_name", verdict(s.Decide(tunnel(t, name+":443"))), name)
		labels, err := policy.ParseLabels(bytes.Split([]byte(name), []byte(".")))
		require.NoError(t, err)
		r := tunnel(t, "a.test:443")
		r.Destination, r.Proto = labels, policy.ProtoDNS
		assert.Equal(t, "deny local_name", verdict(s.Decide(r)), name)
	}
	for _, name := range []string{"wpad2.example.com", "x.wpad.example.com"} {
		assert.Equal(t, "allow open_network", verdict(s.Decide(tunnel(t, name+":443"))), name)
	}
}
