package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"sluicegate/policy"
)

// tlsCheck is what a tunnel must begin with.
type tlsCheck int

const (
	// tlsAny: whatever it likes.
	tlsAny tlsCheck = iota
	// tlsIfSpoken: whatever it likes, but a ClientHello must name the host. The
	// server may speak first.
	tlsIfSpoken
	// tlsRequired: a ClientHello that names the host.
	tlsRequired
)

// checkOf is the check that fits a tunnel which was allowed.
func (f *flow) checkOf() tlsCheck {
	switch {
	case f.decision.TLSAny:
		return tlsAny
	case f.dest.Port() == 443:
		return tlsRequired
	default:
		return tlsIfSpoken
	}
}

// unchecked tells whether a decision lets a tunnel to port 443 carry anything.
func (f *flow) unchecked(d *policy.Decision) bool {
	return d.TLSAny && f.dest.Port() == 443 && f.proto != policy.ProtoHTTP
}

// accessDenied is the alert that ends a handshake, RFC 8446 section 6: fatal,
// access_denied.
var accessDenied = []byte{recordAlert, 3, 3, 0, 2, 2, 49}

// helloRefusal ends a tunnel whose client said the wrong thing.
type helloRefusal struct {
	decision policy.Decision
	reason   policy.Reason
	detail   string
}

func (e *helloRefusal) Error() string { return "proxy: refused in the tunnel: " + string(e.reason) }

// helloGuard is what a tunnel's client writes through on its way to the
// destination: bytes go on, unchanged, once the ClientHello that they are part
// of may pass. It is used by one goroutine at a time.
type helloGuard struct {
	s        *Server
	f        *flow
	upstream *net.TCPConn
	check    tlsCheck
	sniffer
	// begun is set when the first bytes may pass, done when nothing is looked at
	// any more, spoke when the client spoke TLS.
	begun, done, spoke bool
}

func (s *Server) newGuard(f *flow, upstream *net.TCPConn, check tlsCheck) *helloGuard {
	g := &helloGuard{s: s, f: f, upstream: upstream, check: check, begun: check != tlsRequired, done: check == tlsAny}
	g.lenient = check == tlsIfSpoken
	return g
}

// Write implements io.Writer. It counts what really goes on. The error of a
// client that may not go on is a *helloRefusal.
func (g *helloGuard) Write(p []byte) (int, error) {
	if g.done {
		return g.forward(p)
	}
	if g.push(p); len(g.held) > 0 && g.hellos == 0 {
		g.spoke = g.held[0] == recordHandshake
	}
	for {
		found, h := g.scan()
		hello := policy.Hello{Fault: h.fault, Name: h.canonical, ECH: h.ech}
		switch found {
		case needMore:
			_, err := g.forward(g.released())
			return len(p), err
		case foundHello:
			if err := g.judge(&h, &hello); err != nil {
				return 0, err
			}
			continue
		case foundOther:
			hello.Fault = policy.ReasonProtocolMismatch
			if g.check == tlsRequired {
				if err := g.judge(nil, &hello); err != nil {
					return 0, err
				}
			}
		case foundFault:
			if err := g.judge(&h, &hello); err != nil {
				return 0, err
			}
		}
		return len(p), g.letGo()
	}
}

func (g *helloGuard) forward(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := g.upstream.Write(b)
	g.f.out.Add(int64(n))
	return n, err
}

// judge asks the policy about the hello and, before the first bytes go on,
// writes that the tunnel is open. h is nil where there is none.
func (g *helloGuard) judge(h *clientHello, hello *policy.Hello) error {
	f, s := g.f, g.s
	if h != nil {
		f.hello = h
	}
	d := f.snapshot.Decide(policy.Request{
		Profile: f.profile, Entitled: f.peer.Entitled, Destination: f.dest, Proto: f.proto, Addrs: f.resolved,
		Hello: hello, Local: s.cfg.Local(), Now: s.cfg.testOnlyNow(),
	})
	if !d.Allowed() {
		return &helloRefusal{decision: d, reason: d.Reason, detail: d.Detail}
	}
	observed := d.Observed() && (d.Would != f.decision.Would || g.hellos > 1)
	f.decision = d
	if observed {
		if err := s.recordObserved(f); err != nil && !s.cfg.AllowUnrecorded {
			return &helloRefusal{decision: d, reason: policy.ReasonAuditUnavailable}
		}
	}
	if !s.goLive(f, standing{addrs: f.resolved, hello: hello}) {
		// No rule decided it: the one that did is gone.
		d = policy.Decision{Profile: d.Profile, Digest: d.Digest, Layer: policy.LayerBuiltin}
		return &helloRefusal{decision: d, reason: policy.ReasonRevoked}
	}
	if g.begun {
		return nil
	}
	if err := s.recordOpened(f); err != nil && !s.cfg.AllowUnrecorded {
		return &helloRefusal{decision: d, reason: policy.ReasonAuditUnavailable}
	}
	g.begun = true
	return nil
}

// fail judges a client that did not finish its hello. In observe mode it may go
// on.
func (g *helloGuard) fail(reason policy.Reason, detail string) error {
	err := g.judge(nil, &policy.Hello{Fault: reason})
	var refused *helloRefusal
	if errors.As(err, &refused) {
		refused.detail = detail
		return err
	}
	return g.letGo()
}

// letGo passes on what is held; nothing is looked at any more.
func (g *helloGuard) letGo() error {
	rest := g.held
	g.held, g.msg, g.done = nil, nil, true
	_, err := g.forward(rest)
	return err
}

// end is called when the client has said all: what is still held is no hello and
// never goes on.
func (g *helloGuard) end() error {
	switch {
	case g.done || len(g.held) == 0:
		return nil
	case g.check == tlsIfSpoken && g.hellos == 0 && !g.collecting && len(g.held) <= recordHeader:
		return g.letGo() // too little for TLS
	}
	return g.fail(policy.ReasonTLSMalformed, "the stream ended inside the TLS handshake")
}

// begin passes on what came with the request, and waits for the hello that the
// tunnel must begin with. silent tells that the client left without a word.
func (g *helloGuard) begin(client socket, early []byte) (silent bool, err error) {
	if _, err := g.Write(early); err != nil || g.begun {
		return false, err
	}
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	b := (*buf)[:cap(*buf)]
	_ = client.SetReadDeadline(time.Now().Add(g.s.cfg.Limits.Hello))
	for !g.begun {
		if g.f.ctx.Err() != nil {
			_ = client.SetReadDeadline(past)
		}
		n, err := client.Read(b)
		g.f.touch(time.Now())
		if n > 0 {
			if _, err := g.Write(b[:n]); err != nil {
				return false, err
			}
			continue
		}
		switch {
		case g.f.ended() != "":
			return true, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := g.fail(policy.ReasonTimeout, "the TLS handshake did not begin in time"); err != nil {
				return false, err
			}
			continue // observed: it may go on
		case len(g.held) == 0:
			return true, nil
		case errors.Is(err, io.EOF):
			return false, g.end()
		default:
			return false, g.fail(policy.ReasonTLSMalformed, "the connection broke off inside the TLS handshake")
		}
	}
	_ = client.SetReadDeadline(time.Time{})
	if g.f.ctx.Err() != nil {
		_ = client.SetReadDeadline(past)
	}
	return false, nil
}

// recordTunnelRefusal records a refusal after the tunnel was granted. recorded
// tells whether the client may be told of it.
func (s *Server) recordTunnelRefusal(f *flow, r *helloRefusal) (recorded bool) {
	s.refused.Add(1)
	granted, stage, status := f.decision, f.stage, f.status
	f.decision, f.stage, f.status = r.decision, "sni", 0
	_, err := s.recordDenied(f, r.reason, r.detail)
	if err != nil {
		s.log.Error("audit record lost", "flow", f.id, "reason", r.reason, "error", err)
	}
	f.decision, f.stage, f.status = granted, stage, status
	return err == nil
}

// endTunnel ends a tunnel that was refused: on TLS by an alert, which clients
// show, else by closing. Without a record nobody is told that he was refused.
func (s *Server) endTunnel(f *flow, g *helloGuard, client socket, recorded bool) {
	s.flows.remove(f)
	_ = g.upstream.Close()
	_ = client.SetWriteDeadline(time.Now().Add(lingerTime))
	if g.spoke && recorded {
		_, _ = client.Write(accessDenied)
	}
	if client.CloseWrite() == nil {
		linger(s.base, client)
	}
}
