package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// System is the upstream that stands for the machine's own DNS settings.
const System = "system"

// defaultTimeout bounds one look-up.
const defaultTimeout = 5 * time.Second

// Type is the kind of address that is looked up, as numbered in RFC 1035 and
// RFC 3596. Nothing else is ever looked up.
type Type uint16

// Types.
const (
	TypeA    Type = Type(typeA)
	TypeAAAA Type = Type(typeAAAA)
)

// Config is what a Resolver needs.
type Config struct {
	// Upstreams are System alone, or addresses of DNS servers. The first is
	// preferred: the next is asked when it fails or is silent. Empty means
	// System.
	Upstreams []string
	// Timeout of one look-up; 0 means 5 s.
	Timeout time.Duration
	// Own returns the addresses of the gate's own DNS listeners, which are
	// never asked. nil means that there are none. It is called concurrently.
	Own func() []netip.AddrPort
	// Logger for operators; nil discards.
	Logger *slog.Logger

	// testOnlySystem replaces where the machine's settings are read.
	testOnlySystem *systemSource
	// testOnlyExchange replaces the network.
	testOnlyExchange exchanger
}

// Resolver resolves names. It judges nothing: the caller has judged the name and
// judges the addresses. It is safe for concurrent use and needs no closing.
type Resolver struct {
	servers []netip.AddrPort
	system  *systemSource // nil with servers of its own
	timeout time.Duration
	own     func() []netip.AddrPort
	ask     exchanger
	flights flights
}

// question is one name and type to look up.
type question struct {
	// name is canonical, wire the same in wire form without the root label.
	name, wire string
	kind       Type
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
	r := &Resolver{timeout: cfg.Timeout, own: cfg.Own, ask: cfg.testOnlyExchange}
	if r.timeout == 0 {
		r.timeout = defaultTimeout
	}
	if r.own == nil {
		r.own = func() []netip.AddrPort { return nil }
	}
	if r.ask == nil {
		r.ask = exchange
	}
	for _, u := range cfg.Upstreams {
		ap, err := ParseUpstream(u)
		switch {
		case err != nil:
			return nil, err
		case ap.IsValid():
			r.servers = append(r.servers, ap)
		case len(cfg.Upstreams) > 1:
			return nil, fmt.Errorf("%s stands alone in the list of DNS upstreams", System)
		}
	}
	if len(r.servers) == 0 {
		if r.system = cfg.testOnlySystem; r.system == nil {
			r.system = newSystemSource(cfg.Logger)
		}
	}
	return r, nil
}

// Resolve looks up one type of address of a canonical name, without trailing
// dot. That there is none is an answer; any failure is an [*Error], or ctx's
// error if the caller has gone. The answer's slices are shared: they must not be
// changed.
func (r *Resolver) Resolve(ctx context.Context, name string, kind Type) (Answer, error) {
	a, err := r.resolve(ctx, name, kind)
	if err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return a, err
	}
	return Answer{}, classify(err)
}

func (r *Resolver) resolve(ctx context.Context, name string, kind Type) (Answer, error) {
	wire, ok := wireName(name)
	if !ok || strings.ToLower(name) != name {
		return Answer{}, errBadName
	}
	t := question{name: name, wire: wire, kind: kind}
	if a, ok := r.system.hosts(t); ok {
		return a, nil
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return localhost(kind), nil
	}
	return r.flights.do(ctx, t, func(ctx context.Context) (Answer, error) {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		return r.lookUp(ctx, t)
	})
}

// localhost is never asked for: RFC 6761 section 6.3.
func localhost(kind Type) Answer {
	if kind == TypeA {
		return Answer{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, TTL: localTTL}
	}
	return Answer{Addrs: []netip.Addr{netip.IPv6Loopback()}, TTL: localTTL}
}

// localTTL is that of names which are known without a server.
const localTTL = 5 * time.Second

// lookUp asks the upstreams of the moment.
func (r *Resolver) lookUp(ctx context.Context, t question) (Answer, error) {
	servers := r.servers
	if r.system != nil {
		servers = r.system.servers()
	}
	own := r.own()
	if len(servers) == 0 {
		return r.system.library(ctx, t, own)
	}
	usable := slices.DeleteFunc(slices.Clone(servers), func(s netip.AddrPort) bool { return slices.ContainsFunc(own, sameServer(s)) })
	if len(usable) == 0 {
		return Answer{}, errAllOwn
	}
	return race(ctx, r.ask, usable, t)
}

// sameServer compares addresses whatever form they are written in.
func sameServer(a netip.AddrPort) func(netip.AddrPort) bool {
	return func(b netip.AddrPort) bool {
		return a.Port() == b.Port() && a.Addr().Unmap().WithZone("") == b.Addr().Unmap().WithZone("")
	}
}

// Lookup returns all addresses of a canonical name, without trailing dot, in the
// order to try, IPv4 first. They are unmapped and without duplicates. A name
// without addresses is [ErrNoName] or [ErrNoAddress]; a failure is as that of
// Resolve. A failure of one type is not told when the other one gave addresses,
// unless its chain leads to a local name.
func (r *Resolver) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	kinds := [2]Type{TypeA, TypeAAAA}
	var answers [2]Answer
	var errs [2]error
	var wg sync.WaitGroup
	for i, kind := range kinds {
		wg.Go(func() { answers[i], errs[i] = r.Resolve(ctx, name, kind) })
	}
	wg.Wait()
	var addrs []netip.Addr
	for i, a := range answers {
		if astray := (*targetError)(nil); errors.As(errs[i], &astray) {
			return nil, errs[i]
		}
		for _, addr := range a.Addrs {
			if !slices.Contains(addrs, addr) {
				addrs = append(addrs, addr)
			}
		}
	}
	switch {
	case len(addrs) > 0:
		return addrs, nil
	case errs[0] != nil:
		return nil, errs[0]
	case errs[1] != nil:
		return nil, errs[1]
	case answers[0].NoName && answers[1].NoName:
		return nil, ErrNoName
	default:
		return nil, ErrNoAddress
	}
}
