package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// System is the upstream that stands for the machine's own DNS settings.
const System = "system"

// defaultTimeout bounds one look-up.
const defaultTimeout = 5 * time.Second

// Config is what a Resolver needs.
type Config struct {
	// Upstreams are System alone, or addresses of DNS servers that are asked in
	// turn. Empty means System.
	Upstreams []string
	// Timeout of one look-up; 0 means 5 s.
	Timeout time.Duration
}

// Resolver resolves names. It is safe for concurrent use.
type Resolver struct {
	resolver *net.Resolver
	timeout  time.Duration
}

// ParseUpstream reads an upstream: System, an address, or address:port (port 53
// if there is none). It returns the zero AddrPort for System.
func ParseUpstream(s string) (netip.AddrPort, error) {
	if s == System {
		return netip.AddrPort{}, nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil && ap.Port() != 0 {
		return ap, nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a, 53), nil
	}
	return netip.AddrPort{}, fmt.Errorf("%q is not a DNS upstream: write %s, an address, or address:port", s, System)
}

// New makes a Resolver. It asks nothing yet.
func New(cfg Config) (*Resolver, error) {
	r := &Resolver{timeout: cfg.Timeout}
	if r.timeout == 0 {
		r.timeout = defaultTimeout
	}
	var servers []string
	for _, u := range cfg.Upstreams {
		ap, err := ParseUpstream(u)
		switch {
		case err != nil:
			return nil, err
		case ap.IsValid():
			servers = append(servers, ap.String())
		case len(cfg.Upstreams) > 1:
			return nil, fmt.Errorf("%s stands alone in the list of DNS upstreams", System)
		}
	}
	r.resolver = &net.Resolver{PreferGo: true}
	if len(servers) > 0 {
		var turn atomic.Uint32
		r.resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			// The address comes from the machine's settings and is not used. Go
			// dials anew for each attempt, so a dead server costs one.
			n := int(turn.Add(1)-1) % len(servers)
			var d net.Dialer
			return d.DialContext(ctx, network, servers[n])
		}
	}
	return r, nil
}

// ErrNoAddress is an answer without addresses.
var ErrNoAddress = errors.New("the name has no address")

// Lookup returns all addresses of name, which has no trailing dot: unmapped,
// without duplicates, in the order to try. An error may have a method Timeout.
func (r *Resolver) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	found, err := r.resolver.LookupNetIP(ctx, "ip", name+".")
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(found))
	for _, a := range found {
		// A zone would come from a hosts file; the guard refuses it.
		if a = a.Unmap(); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return nil, ErrNoAddress
	}
	return addrs, nil
}
