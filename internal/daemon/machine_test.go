package daemon

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"sluicegate/internal/identity"
	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var discard = slog.New(slog.DiscardHandler)

// judged asks a policy that grants every address on one port about one of them.
func judged(t *testing.T, local *policy.LocalSet, dest netip.AddrPort) policy.Decision {
	t.Helper()
	rule := `      - {ip: "` + dest.Addr().String() + `", ports: [` + strconv.Itoa(int(dest.Port())) + `]}`
	s, err := policy.Compile([]policy.File{{Name: "p.yaml", Data: []byte(onePolicy("    allow:", rule))}})
	require.NoError(t, err)
	destination, err := policy.ParseHostPort(dest.String(), 443)
	require.NoError(t, err)
	return s.Decide(policy.Request{
		Profile: commands, Entitled: true, Proto: policy.ProtoConnect, Destination: destination, Local: local, Now: time.Now(),
	})
}

func TestMachineKnowsItsListeners(t *testing.T) {
	m := &machine{ports: []uint16{18081}}
	require.NoError(t, m.refresh())
	d := judged(t, m.local(), netip.MustParseAddrPort("127.0.0.1:18081"))
	assert.Equal(t, policy.ReasonDestSelf, d.Reason, "no rule opens the gate's own listener")
	d = judged(t, m.local(), netip.MustParseAddrPort("127.0.0.1:18082"))
	assert.True(t, d.Allowed(), "a neighbour of it is any other local server")
}

func TestMachineKnowsItsAddresses(t *testing.T) {
	m := &machine{}
	require.NoError(t, m.refresh())
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	tried := 0
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
		require.True(t, ok)
		if ip = ip.Unmap(); ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		tried++
		d := judged(t, m.local(), netip.AddrPortFrom(ip, 22))
		assert.Equal(t, policy.ReasonDestSelf, d.Reason, "%s is an address of this machine", ip)
	}
	t.Logf("%d addresses besides loopback", tried)
}

func TestLocalSetOfAPolicy(t *testing.T) {
	s, err := policy.Compile([]policy.File{{Name: "p.yaml", Data: []byte(
		"version: 1\nproduct: claude-code\nprofiles:\n  commands:\n    listen: {port: 0}\n  process:\n    listen: {port: 18091}\n",
	)}})
	require.NoError(t, err)
	local, err := LocalSet(s)
	require.NoError(t, err)
	d := judged(t, local, netip.MustParseAddrPort("127.0.0.1:18091"))
	assert.Equal(t, policy.ReasonDestSelf, d.Reason)
	d = judged(t, local, netip.MustParseAddrPort("127.0.0.1:18082"))
	assert.True(t, d.Allowed())
}

// Addresses come and go while the gate runs.
func TestMachineLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{log: discard}
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			m.watch(done)
		}()
		time.Sleep(refreshLocal - time.Nanosecond)
		synctest.Wait()
		assert.Nil(t, m.local())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		first := m.local()
		assert.NotNil(t, first)
		time.Sleep(refreshLocal)
		synctest.Wait()
		assert.NotSame(t, first, m.local())
		close(done)
		<-ended
	})
}

// loopbackConn returns both ends of a connection on loopback.
func loopbackConn(t *testing.T) (accepted, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	client, err = net.Dial("tcp4", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	accepted, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = accepted.Close() })
	return accepted, client
}

func addrPort(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

func newPeers(own identity.OwnUser) *peers {
	return &peers{own: own, log: discard, names: map[uint32]string{}}
}

func TestPeerOfOwnUser(t *testing.T) {
	accepted, _ := loopbackConn(t)
	p := newPeers(identity.Self()).Identify(addrPort(accepted.LocalAddr()), addrPort(accepted.RemoteAddr()))
	assert.True(t, p.Entitled)
	if !identity.Supported() {
		t.Skip("this system does not tell who owns a connection")
	}
	assert.True(t, p.UIDKnown)
	assert.EqualValues(t, os.Geteuid(), p.UID)
	me, err := user.Current()
	if err == nil {
		assert.Equal(t, me.Username, p.User)
	}
}

// The zero rule stands for a gate of another user than the one who connects.
func TestPeerOfAnotherUser(t *testing.T) {
	if !identity.Supported() {
		t.Skip("this system does not tell who owns a connection")
	}
	accepted, _ := loopbackConn(t)
	p := newPeers(identity.OwnUser{}).Identify(addrPort(accepted.LocalAddr()), addrPort(accepted.RemoteAddr()))
	assert.False(t, p.Entitled)
	assert.True(t, p.UIDKnown, "who was refused is for the record")
	assert.EqualValues(t, os.Geteuid(), p.UID)
}

// Who can't be told is not served, also when the question makes no sense.
func TestPeerUnknown(t *testing.T) {
	if !identity.Supported() {
		t.Skip("this system does not tell who owns a connection")
	}
	accepted, client := loopbackConn(t)
	local, remote := addrPort(accepted.LocalAddr()), addrPort(accepted.RemoteAddr())
	require.NoError(t, client.Close())
	require.NoError(t, accepted.Close())
	peers := newPeers(identity.Self())
	for name, addrs := range map[string][2]netip.AddrPort{
		"gone":         {local, remote},
		"elsewhere":    {local, netip.MustParseAddrPort("192.0.2.7:4000")},
		"two families": {local, netip.MustParseAddrPort("[::1]:4000")},
		"nothing":      {},
	} {
		p := peers.Identify(addrs[0], addrs[1])
		assert.False(t, p.Entitled, name)
		assert.False(t, p.UIDKnown, name)
		assert.Empty(t, p.User, name)
	}
}

// A user without a name is called by the number, and names are not kept without
// bound.
func TestPeerNames(t *testing.T) {
	p := newPeers(identity.Self())
	const nameless = 4_000_000_000
	for uid := uint32(nameless); uid < nameless+2*maxNames; uid++ {
		require.Equal(t, strconv.FormatUint(uint64(uid), 10), p.name(uid))
	}
	assert.Len(t, p.names, maxNames)
	p.names[nameless] = "kept"
	assert.Equal(t, "kept", p.name(nameless))
}
