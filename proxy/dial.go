package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"sluicegate/policy"
)

// attemptDelay is the pause before the next address is tried beside the ones
// still connecting, RFC 8305 section 5.
const attemptDelay = 250 * time.Millisecond

// failure is why a request could not be served after the verdict on its name.
type failure struct {
	reason policy.Reason
	detail string
}

// judge asks the policy about the flow with what is known so far.
func (s *Server) judge(f *flow, addrs []netip.Addr) policy.Decision {
	return f.snapshot.Decide(policy.Request{
		Profile: f.profile, Entitled: f.peer.Entitled, Destination: f.dest, Proto: f.proto,
		Addrs: addrs, Local: s.cfg.Local(), Now: s.cfg.testOnlyNow(),
	})
}

// outcome is what opening a destination found out. It is separate from the
// flow because net/http may go on with a dial whose request is over.
type outcome struct {
	decision policy.Decision
	stage    string
	resolved []netip.Addr
	server   netip.AddrPort
}

// apply takes over what was found out.
func (f *flow) apply(o *outcome) {
	f.decision, f.stage, f.resolved, f.server = o.decision, o.stage, o.resolved, o.server
}

// open resolves the flow's destination, judges every address and connects to
// one of them. first is the decision on the name. It may run on a goroutine of
// net/http, where nobody else would catch a panic.
func (s *Server) open(ctx context.Context, f *flow, first policy.Decision) (conn *net.TCPConn, o *outcome, fail *failure) {
	o = &outcome{decision: first}
	defer func() {
		if v := recover(); v != nil {
			s.panicked(v)
			conn, fail = nil, &failure{reason: policy.ReasonInternal}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Limits.Dial)
	defer cancel()
	addrs := []netip.Addr{f.dest.Addr()}
	if name := f.dest.Name(); name != "" {
		o.stage = "dns"
		q := Query{Profile: f.profile, Flow: f.id, Name: name}
		if first.Rule != nil {
			q.Rule = first.Rule.ID
		}
		answer, err := s.cfg.Resolver.Resolve(ctx, q)
		if err != nil || len(answer.Addrs) == 0 {
			return nil, o, s.resolveFailure(ctx, f, err)
		}
		addrs = answer.Addrs
	}
	o.resolved = addrs
	o.stage = "dial"
	o.decision = s.judge(f, addrs)
	if !o.decision.Allowed() {
		return nil, o, &failure{reason: o.decision.Reason, detail: o.decision.Detail}
	}
	conn, err := s.dialAny(ctx, f, addrs)
	if err != nil {
		return nil, o, s.dialFailure(f, o, err)
	}
	o.server = addrPort(conn.RemoteAddr())
	if !s.goLive(f, standing{addrs: addrs, unchecked: f.unchecked(&o.decision)}) {
		_ = conn.Close()
		return nil, o, &failure{reason: policy.ReasonRevoked}
	}
	return conn, o, nil
}

func (s *Server) resolveFailure(ctx context.Context, f *flow, err error) *failure {
	if ctx.Err() != nil {
		// The resolver gave up because it was told to, whatever it says.
		err = ctx.Err()
	}
	var timeout interface{ Timeout() bool }
	var reasoned interface{ PolicyReason() policy.Reason }
	switch {
	case f.ended() != "":
		return &failure{reason: f.ended()}
	case errors.Is(err, context.Canceled):
		return &failure{reason: policy.ReasonClientClosed}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &failure{reason: policy.ReasonDNSTimeout}
	case errors.As(err, &reasoned) && reasoned.PolicyReason() == policy.ReasonCNAMENotAllowed:
		// Not a fault of the network: the name was pointed at one that is not
		// allowed, and who looks into it must see that.
		return &failure{reason: policy.ReasonCNAMENotAllowed}
	default:
		s.log.Debug("resolving failed", "flow", f.id, "error", err)
		return &failure{reason: policy.ReasonDNSError}
	}
}

// guardError is a socket address that was refused right before it connected.
type guardError struct{ decision policy.Decision }

func (e *guardError) Error() string { return "proxy: refused at connect: " + string(e.decision.Reason) }

// errPanic is an attempt to connect that panicked.
var errPanic = errors.New("proxy: panic while connecting")

func (s *Server) dialFailure(f *flow, o *outcome, err error) *failure {
	var refused *guardError
	switch {
	case errors.As(err, &refused):
		o.decision = refused.decision
		return &failure{reason: refused.decision.Reason}
	case errors.Is(err, errPanic):
		return &failure{reason: policy.ReasonInternal}
	case f.ended() != "":
		return &failure{reason: f.ended()}
	case errors.Is(err, context.Canceled):
		return &failure{reason: policy.ReasonClientClosed}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return &failure{reason: policy.ReasonUpstreamTimeout}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &failure{reason: policy.ReasonUpstreamRefused}
	case errors.Is(err, syscall.ECONNRESET):
		return &failure{reason: policy.ReasonUpstreamReset}
	default:
		// Unreachable networks and hosts, local resource faults: the text may
		// hold addresses, so it goes to the operator's log only.
		s.log.Debug("dialling failed", "flow", f.id, "error", err)
		return &failure{reason: policy.ReasonUpstreamTimeout}
	}
}

// dialAny connects to the first address that answers, starting one attempt
// after the other.
func (s *Server) dialAny(ctx context.Context, f *flow, addrs []netip.Addr) (*net.TCPConn, error) {
	if len(addrs) == 1 {
		return s.dialOne(ctx, f, addrs[0])
	}
	type result struct {
		conn *net.TCPConn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	started, running := 0, 0
	start := func() {
		a := addrs[started]
		started++
		running++
		go func() {
			conn, err := s.dialOne(ctx, f, a)
			select {
			case results <- result{conn, err}:
			case <-ctx.Done():
				// Another one won, or the caller is gone.
				if conn != nil {
					_ = conn.Close()
				}
			}
		}()
	}
	addrs = interleave(addrs)
	start()
	timer := time.NewTimer(attemptDelay)
	defer timer.Stop()
	var first error
	for {
		select {
		case r := <-results:
			running--
			if r.err == nil {
				return r.conn, nil
			}
			// An address that was refused refuses the answer as a whole.
			if final(r.err) {
				return nil, r.err
			}
			if first == nil {
				first = r.err
			}
			if started < len(addrs) {
				start()
				timer.Reset(attemptDelay)
			} else if running == 0 {
				return nil, first
			}
		case <-timer.C:
			if started < len(addrs) {
				start()
				timer.Reset(attemptDelay)
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// final tells whether an error ends all attempts.
func final(err error) bool {
	var refused *guardError
	return errors.As(err, &refused) || errors.Is(err, errPanic)
}

// interleave alternates the families, the first address's family first (RFC
// 8305 section 4), so that a dead family costs one delay.
func interleave(addrs []netip.Addr) []netip.Addr {
	first := addrs[0].Unmap().Is4()
	var same, other []netip.Addr
	for _, a := range addrs {
		if a.Unmap().Is4() == first {
			same = append(same, a)
		} else {
			other = append(other, a)
		}
	}
	out := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(same), len(other)) {
		if i < len(same) {
			out = append(out, same[i])
		}
		if i < len(other) {
			out = append(out, other[i])
		}
	}
	return out
}

// dialOne connects to a judged address and to nothing else: the control
// function sees the socket's real address and asks the policy again.
func (s *Server) dialOne(ctx context.Context, f *flow, a netip.Addr) (conn *net.TCPConn, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.panicked(v)
			conn, err = nil, errPanic
		}
	}()
	want := netip.AddrPortFrom(a.Unmap(), f.dest.Port())
	d := &net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		got, err := netip.ParseAddrPort(address)
		if err != nil || netip.AddrPortFrom(got.Addr().Unmap(), got.Port()) != want {
			return &guardError{policy.Decision{Reason: policy.ReasonInternal}}
		}
		again := s.judge(f, []netip.Addr{want.Addr()})
		if !again.Allowed() {
			return &guardError{again}
		}
		return nil
	}}
	// Multipath TCP would let the peer add addresses that nobody judged.
	d.SetMultipathTCP(false)
	return s.cfg.testOnlyDial(ctx, d, want)
}

func dialTCP(ctx context.Context, d *net.Dialer, addr netip.AddrPort) (*net.TCPConn, error) {
	conn, err := d.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// addrPort reads a TCP address, unmapped.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
