package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Server answers DNS queries: any number of listeners, one for each profile and
// address. Its methods may be called from any goroutine.
type Server struct {
	cfg     ServerConfig
	log     *slog.Logger
	healthy func() bool

	// base is the parent of every query's context.
	base   context.Context
	cancel context.CancelFunc

	queries, refused, dropped atomic.Int64

	mu       sync.Mutex
	bindings []*binding
	profiles map[string]*profileServer
	started  bool
	stopped  bool
}

// profileServer answers for one profile, on whichever listeners it has.
type profileServer struct {
	s    *Server
	name string
	// slots are the queries being answered, lookups those that wait for an
	// upstream.
	slots, lookups chan struct{}
	conns          atomic.Int64
	broken         bucket
}

// NewServer makes a Server that listens on nothing yet. Required fields that are
// nil are an error.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Snapshot == nil || cfg.Recorder == nil || cfg.Resolver == nil || cfg.Identifier == nil {
		return nil, errors.New("dnsguard: Snapshot, Recorder, Resolver and Identifier are required")
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Logger, profiles: map[string]*profileServer{}}
	if h, ok := cfg.Recorder.(interface{ Healthy() bool }); ok && !cfg.AllowUnrecorded {
		s.healthy = h.Healthy
	}
	s.base, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// mayPass tells whether records can be written, as far as is known.
func (s *Server) mayPass() bool { return s.healthy == nil || s.healthy() }

// anyPortTries is how often a port is looked for that is free for both UDP and
// TCP.
const anyPortTries = 20

// Listen binds one loopback address for a profile, UDP and TCP on the same port;
// port 0 is any that is free for both. Queries wait in the kernel's queue until
// Start. Any other address is refused: the listener is the identity and has no
// password. It returns net.ErrClosed after Shutdown.
func (s *Server) Listen(ctx context.Context, profile string, addr netip.AddrPort) (netip.AddrPort, error) {
	if !addr.Addr().IsLoopback() {
		return netip.AddrPort{}, fmt.Errorf("listening on %s: only loopback addresses are served", addr)
	}
	tcp, udp, err := listenBoth(ctx, addr)
	for try := 1; err != nil && addr.Port() == 0 && try < anyPortTries; try++ {
		tcp, udp, err = listenBoth(ctx, addr)
	}
	if err != nil {
		return netip.AddrPort{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_, _ = tcp.Close(), udp.Close()
		return netip.AddrPort{}, net.ErrClosed
	}
	b := newBinding(s, s.profile(profile), udp, tcp)
	s.bindings = append(s.bindings, b)
	if s.started {
		b.start()
	}
	return b.addr, nil
}

// profile returns what answers for a profile. s.mu is held.
func (s *Server) profile(name string) *profileServer {
	p := s.profiles[name]
	if p == nil {
		n := s.cfg.Limits.Queries
		p = &profileServer{
			s: s, name: name, slots: make(chan struct{}, n), lookups: make(chan struct{}, max(1, n/2)),
		}
		s.profiles[name] = p
	}
	return p
}

// listenBoth binds TCP and then UDP on the port that TCP got.
func listenBoth(ctx context.Context, addr netip.AddrPort) (*net.TCPListener, *net.UDPConn, error) {
	family := "4"
	if addr.Addr().Is6() {
		family = "6"
	}
	var lc net.ListenConfig
	// A multipath listener would hide the peer's socket from the uid look-up.
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(ctx, "tcp"+family, addr.String())
	if err != nil {
		return nil, nil, err
	}
	tcp := ln.(*net.TCPListener)
	pc, err := lc.ListenPacket(ctx, "udp"+family, tcp.Addr().String())
	if err != nil {
		_ = tcp.Close()
		return nil, nil, err
	}
	return tcp, pc.(*net.UDPConn), nil
}

// Addresses are the bound addresses, for [Config.Own].
func (s *Server) Addresses() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]netip.AddrPort, 0, len(s.bindings))
	for _, b := range s.bindings {
		out = append(out, b.addr)
	}
	return out
}

// Unlisten closes the listener of an address that Listen returned, after the
// queries that are being answered.
func (s *Server) Unlisten(addr netip.AddrPort) {
	s.mu.Lock()
	var found *binding
	for i, b := range s.bindings {
		if b.addr == addr {
			found = b
			s.bindings = append(s.bindings[:i:i], s.bindings[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	if found == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.base, patience)
	defer cancel()
	found.shutdown(ctx)
	found.wait()
}

// Start serves everything that listens, and what will. It returns when every
// listener is served, and does nothing the second time.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.stopped {
		return
	}
	s.started = true
	for _, b := range s.bindings {
		b.start()
	}
}

// Shutdown stops to listen, waits for queries that are being answered until ctx
// ends, then ends the rest. It returns when every goroutine of the server is
// gone: a client that does not read its answer is waited for at most 2 s.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.stopped = true
	bindings := s.bindings
	s.bindings = nil
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, b := range bindings {
		wg.Go(func() { b.shutdown(ctx) })
	}
	wg.Wait()
	s.cancel()
	for _, b := range bindings {
		b.wait()
	}
}

// Stats are counters since the start.
type Stats struct {
	// Connections are open now.
	Connections int
	// Queries were read, Refused are those that were refused or failed, Dropped
	// packets were not answered at all.
	Queries, Refused, Dropped int64
}

// Stats returns the counters of the moment.
func (s *Server) Stats() Stats {
	out := Stats{Queries: s.queries.Load(), Refused: s.refused.Load(), Dropped: s.dropped.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.profiles {
		out.Connections += int(p.conns.Load())
	}
	return out
}

// bucket lets brokenBurst events through at once and brokenRate a second in the
// long run. The zero bucket is full.
type bucket struct {
	mu   sync.Mutex
	used float64
	last time.Time
}

// Rate of broken packets that are answered and recorded, for each profile.
const (
	brokenRate  = 10
	brokenBurst = 100
)

func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(0, b.used-now.Sub(b.last).Seconds()*brokenRate)
	b.last = now
	if b.used+1 > brokenBurst {
		return false
	}
	b.used++
	return true
}
