package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnyPortIsTheSameOnBothAddresses(t *testing.T) {
	d := start(t, newOptions(t))
	require.Len(t, d.bound, 1)
	addrs := d.bound[0].Addresses
	require.NotEmpty(t, addrs)
	assert.Equal(t, "127.0.0.1", addrs[0].Addr().String())
	assert.NotZero(t, addrs[0].Port())
	if hasIPv6(t) {
		require.Len(t, addrs, 2)
		assert.Equal(t, "::1", addrs[1].Addr().String())
		assert.Equal(t, addrs[0].Port(), addrs[1].Port(), "clients are told one port")
	}
	for _, a := range addrs {
		refusedBy(t, a.String(), "forbidden.example.net")
	}
}

func TestPortThatIsTaken(t *testing.T) {
	for name, host := range map[string]string{"IPv4": "127.0.0.1", "IPv6 only": "::1"} {
		t.Run(name, func(t *testing.T) {
			if host == "::1" && !hasIPv6(t) {
				t.Skip("this host has no IPv6 loopback")
			}
			port := takenPort(t, host)
			o := newOptions(t)
			write(t, filepath.Join(o.Paths.Policy, "claude-code.yaml"),
				"version: 1\nproduct: claude-code\nprofiles:\n  commands:\n    listen: {port: "+port+"}\n")
			_, err := Start(t.Context(), o)
			require.EqualError(t, err, "listening on "+net.JoinHostPort(host, port)+" for claude-code/commands: the port is in use; "+
				"stop the program that has it, or set profiles.commands.listen.port of product claude-code to another one")
		})
	}
}

func TestBindError(t *testing.T) {
	p := policy.Profile{Name: "claude-code/commands", Product: "claude-code", Port: 80}
	addr := netip.MustParseAddrPort("127.0.0.1:80")
	wrapped := func(err error) error {
		return &net.OpError{Op: "listen", Net: "tcp4", Err: os.NewSyscallError("bind", err)}
	}
	const head = "listening on 127.0.0.1:80 for claude-code/commands: "
	err := bindError(p, addr, wrapped(errPermission))
	assert.EqualError(t, err, head+"this user may not bind the port; set profiles.commands.listen.port of product claude-code to one above 1023")
	err = bindError(p, addr, wrapped(errInUse))
	assert.ErrorContains(t, err, head+"the port is in use; ")
	odd := errors.New("something odd")
	err = bindError(p, addr, wrapped(fmt.Errorf("deeper: %w", odd)))
	assert.EqualError(t, err, head+"something odd", "the address is told once")
	assert.ErrorIs(t, err, odd)
}

func TestNoSuchAddress(t *testing.T) {
	assert.True(t, noSuchAddress(fmt.Errorf("wrapped: %w", errNoAddress)))
	assert.False(t, noSuchAddress(errInUse))
	assert.False(t, noSuchAddress(errPermission))
	// What the system says about an address that no machine has.
	l, err := net.Listen("tcp4", "192.0.2.7:0")
	if err == nil {
		require.NoError(t, l.Close())
		t.Skip("this system binds addresses that it does not have")
	}
	assert.True(t, noSuchAddress(err), err)
}

// ports is a binder without a system below it: listen says what becomes of an
// address, and bound holds what is bound.
type ports struct {
	listen func(addr netip.AddrPort) (netip.AddrPort, error)
	bound  map[netip.AddrPort]bool
}

func (p *ports) Listen(_ context.Context, _ string, addr netip.AddrPort) (netip.AddrPort, error) {
	got, err := p.listen(addr)
	if err == nil {
		p.bound[got] = true
	}
	return got, err
}

func (p *ports) Unlisten(addr netip.AddrPort) { delete(p.bound, addr) }

func newPorts(listen func(netip.AddrPort) (netip.AddrPort, error)) *ports {
	return &ports{listen: listen, bound: map[netip.AddrPort]bool{}}
}

// bindAny binds one profile that asks for any port, and returns what was logged.
func bindAny(p *ports) (addrs []netip.AddrPort, log string, err error) {
	var b strings.Builder
	bound, err := bindAll(context.Background(), p, []policy.Profile{{Name: commands, Product: "claude-code"}}, slog.New(slog.NewTextHandler(&b, nil)))
	for _, one := range bound {
		addrs = append(addrs, one.Addresses...)
	}
	return addrs, b.String(), err
}

// A port that the system gives on one address may be taken on the other.
func TestAnyPortIsLookedForAgain(t *testing.T) {
	next := uint16(40000)
	p := newPorts(func(addr netip.AddrPort) (netip.AddrPort, error) {
		switch {
		case addr.Addr().Is4():
			next++
			return netip.AddrPortFrom(addr.Addr(), next), nil
		case addr.Port() < 40003:
			return netip.AddrPort{}, errInUse
		}
		return addr, nil
	})
	addrs, log, err := bindAny(p)
	require.NoError(t, err)
	want := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:40003"), netip.MustParseAddrPort("[::1]:40003")}
	assert.Equal(t, want, addrs)
	assert.Equal(t, map[netip.AddrPort]bool{want[0]: true, want[1]: true}, p.bound, "no half of a pair is left open")
	assert.Empty(t, log)

	p = newPorts(func(addr netip.AddrPort) (netip.AddrPort, error) {
		if addr.Addr().Is6() {
			return netip.AddrPort{}, errInUse
		}
		next++
		return netip.AddrPortFrom(addr.Addr(), next), nil
	})
	_, _, err = bindAny(p)
	assert.ErrorContains(t, err, "the port is in use", "it is not looked for without end")
	assert.ErrorContains(t, err, "listening on [::1]:")
}

// A host without IPv6 is served on IPv4, and that is said.
func TestHostWithoutIPv6(t *testing.T) {
	p := newPorts(func(addr netip.AddrPort) (netip.AddrPort, error) {
		if addr.Addr().Is6() {
			return netip.AddrPort{}, fmt.Errorf("wrapped: %w", errNoAddress)
		}
		return netip.AddrPortFrom(addr.Addr(), 40001), nil
	})
	addrs, log, err := bindAny(p)
	require.NoError(t, err)
	assert.Equal(t, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:40001")}, addrs)
	assert.Contains(t, log, "level=WARN")
	assert.Contains(t, log, "no IPv6 loopback")
	assert.Contains(t, log, commands)
}
