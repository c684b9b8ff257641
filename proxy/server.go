package proxy

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

	"sluicegate/policy"
)

// sweepEvery is how often flows are held against the idle limits.
const sweepEvery = time.Second

// Server is the HTTP side of the gate: any number of listeners, one for each
// profile and address, over one flow table. Its methods may be called from any
// goroutine.
type Server struct {
	cfg   Config
	log   *slog.Logger
	flows *flowTable

	// base is the parent of every flow's context.
	base   context.Context
	cancel context.CancelCauseFunc

	conns   atomic.Int64
	refused atomic.Int64
	opened  atomic.Int64

	mu        sync.Mutex
	listeners []*listener
	profiles  map[string]*profileServer
	started   bool
	stopped   bool

	// wg counts accept loops, connections and the sweeper.
	wg sync.WaitGroup
}

// New makes a Server that listens on nothing yet. Required fields that are nil
// are an error.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Snapshot == nil, cfg.Recorder == nil, cfg.Resolver == nil, cfg.Identifier == nil:
		return nil, errors.New("proxy: Snapshot, Recorder, Resolver and Identifier are required")
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Logger, flows: newFlowTable(), profiles: map[string]*profileServer{}}
	s.base, s.cancel = context.WithCancelCause(context.Background())
	s.wg.Add(1)
	go s.sweepLoop()
	return s, nil
}

func (s *Server) sweepLoop() {
	defer s.wg.Done()
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.flows.sweep(time.Now(), s.cfg.Limits)
		case <-s.base.Done():
			return
		}
	}
}

// Listen binds one loopback address for a profile. Connections wait in the
// kernel's queue until Start. Any other address is refused: the listener is the
// identity and has no password.
func (s *Server) Listen(ctx context.Context, profile string, addr netip.AddrPort) (netip.AddrPort, error) {
	if !addr.Addr().IsLoopback() {
		return netip.AddrPort{}, fmt.Errorf("listening on %s: only loopback addresses are served", addr)
	}
	var lc net.ListenConfig
	// A multipath listener would hide the peer's socket from the uid look-up.
	lc.SetMultipathTCP(false)
	network := "tcp4"
	if addr.Addr().Is6() {
		network = "tcp6"
	}
	ln, err := lc.Listen(ctx, network, addr.String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	if err := s.addListener(profile, ln); err != nil {
		return netip.AddrPort{}, err
	}
	return addrPort(ln.Addr()), nil
}

func (s *Server) addListener(profile string, ln net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_ = ln.Close()
		return net.ErrClosed
	}
	p := s.profiles[profile]
	if p == nil {
		p = newProfileServer(s, profile)
		s.profiles[profile] = p
	}
	l := &listener{s: s, profile: p, ln: ln}
	s.listeners = append(s.listeners, l)
	if s.started {
		s.wg.Add(1)
		go l.acceptLoop()
	}
	return nil
}

// Unlisten closes the listener of an address that Listen returned.
func (s *Server) Unlisten(addr netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.listeners {
		if addrPort(l.ln.Addr()) == addr {
			_ = l.ln.Close()
			s.listeners = append(s.listeners[:i], s.listeners[i+1:]...)
			return
		}
	}
}

// Start serves everything that listens, and what will. It does nothing the
// second time.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.stopped {
		return
	}
	s.started = true
	for _, l := range s.listeners {
		s.wg.Add(1)
		go l.acceptLoop()
	}
}

// Stats are counters since the start.
type Stats struct {
	// Connections and Flows are open now.
	Connections, Flows int
	// Refused and Opened count requests since the start.
	Refused, Opened int64
}

// Stats returns the counters of the moment.
func (s *Server) Stats() Stats {
	return Stats{
		Connections: int(s.conns.Load()), Flows: s.flows.len(),
		Refused: s.refused.Load(), Opened: s.opened.Load(),
	}
}

// Shutdown stops to accept, waits for live requests and tunnels until ctx ends,
// then ends the rest with the reason shutdown. It returns when every goroutine
// of the server is gone, and how many requests and tunnels it had to end.
func (s *Server) Shutdown(ctx context.Context) int {
	s.mu.Lock()
	s.stopped = true
	listeners, profiles := s.listeners, s.profiles
	s.listeners = nil
	s.mu.Unlock()
	for _, l := range listeners {
		_ = l.ln.Close()
	}
	for _, p := range profiles {
		p.stopKeeping()
	}
	cut := 0
	if s.flows.drained(ctx) != nil {
		cut = s.flows.cancelAll(policy.ReasonShutdown)
	}
	// Connections without a request in flight, and those whose request was just
	// ended, go now.
	s.cancel(&endCause{policy.ReasonShutdown})
	for _, p := range profiles {
		p.close()
	}
	s.wg.Wait()
	return cut
}
