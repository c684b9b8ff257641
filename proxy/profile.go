package proxy

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"sluicegate/policy"
)

// profileServer serves what is not a CONNECT for one profile: a net/http server
// over connections handed to it, and the forwarder behind it. Upstream
// connections are kept per profile, never shared between them.
type profileServer struct {
	s     *Server
	name  string
	conns atomic.Int64

	http    *http.Server
	handoff *handoff
	forward *forwarder
}

func newProfileServer(s *Server, name string) *profileServer {
	p := &profileServer{s: s, name: name, handoff: newHandoff()}
	p.forward = newForwarder(s)
	p.http = &http.Server{
		Handler:           http.HandlerFunc(p.serveHTTP),
		ReadHeaderTimeout: s.cfg.Limits.Handshake,
		IdleTimeout:       s.cfg.Limits.Idle,
		// The connection bounds heads; net/http's own bound must not be first.
		MaxHeaderBytes:               2 * s.cfg.Limits.HeaderBytes,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnState: func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateIdle:
				c.(*requestConn).answered()
			case http.StateClosed:
				c.(*requestConn).finished()
			}
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, p.handoff.client(c))
		},
		BaseContext: func(net.Listener) context.Context { return s.base },
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		_ = p.http.Serve(p.handoff)
	}()
	return p
}

// hand gives a connection to net/http; false when the server stops.
func (p *profileServer) hand(c *clientConn) bool { return p.handoff.offer(c) }

// stopKeeping ends idle kept connections and makes the busy ones end after
// their reply.
func (p *profileServer) stopKeeping() { p.http.SetKeepAlivesEnabled(false) }

func (p *profileServer) close() {
	_ = p.http.Close()
	p.forward.close()
}

type connKey struct{}

// serveHTTP judges one plain request and forwards it.
func (p *profileServer) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s := p.s
	c, ok := r.Context().Value(connKey{}).(*clientConn)
	var h *head
	if ok {
		h = c.rc.claim()
	}
	if h == nil || !h.describes(r) {
		// Cannot happen; a request that was not validated is not served.
		s.log.Error("request without its validated head", "profile", p.name)
		panic(http.ErrAbortHandler)
	}
	// An answer may come before the body has gone up, and must not wait for it.
	_ = http.NewResponseController(w).EnableFullDuplex()
	out := &reply{ResponseWriter: w, accept: r.Header.Get("Accept")}
	var f *flow
	defer func() {
		v := recover()
		switch {
		case v == nil:
			return
		case v == http.ErrAbortHandler: //nolint:errorlint // net/http compares it so
			panic(v)
		}
		s.panicked(v)
		refusal, stop := s.recordSafely(func() *flow {
			if f == nil {
				return c.flow(h)
			}
			return f
		}, policy.ReasonInternal)
		defer stop()
		if out.wrote {
			panic(http.ErrAbortHandler)
		}
		out.refuse(refusal, true)
	}()
	f = c.flow(h)
	defer f.cancel(nil)
	s.flows.add(f)
	defer s.flows.remove(f)
	ctx, stop := mergeCancel(r.Context(), f.ctx)
	defer stop()
	p.judgeHTTP(out, r.WithContext(ctx), c, h, f)
}

// passOver prepares for the rest of a request that was answered. A short body is
// passed over, to keep the connection; last tells that this would take too long,
// or that it may not come at all.
func (c *clientConn) passOver(h *head, bodyHere bool) (last bool) {
	switch {
	case bodyHere:
		return false
	case h.chunked, h.length > maxDrain, h.expect:
		c.rc.hurry(lingerTime)
		return true
	default:
		c.rc.hurry(c.l.s.cfg.Limits.Handshake)
		return false
	}
}

// drain reads what is left of a body, within the handler: when net/http does it
// after the handler of a full-duplex exchange, it may start to read ahead at the
// body's end, and then the next read of the connection panics.
func drain(body io.Reader) { _, _ = io.CopyN(io.Discard, body, maxDrain) }

// describes tells whether net/http read the request that was validated.
func (h *head) describes(r *http.Request) bool {
	length := max(h.length, 0)
	if h.chunked {
		length = -1
	}
	return r.Method == h.method && r.RequestURI == h.target && r.ContentLength == length
}

// judgeHTTP is the decision for one plain request.
func (p *profileServer) judgeHTTP(w *reply, r *http.Request, c *clientConn, h *head, f *flow) {
	s := p.s
	bodyHere, bodyFault := c.rc.peekBody(h)
	refuse := func(reason policy.Reason, detail string) {
		last := c.passOver(h, bodyHere)
		w.refuse(s.recordRefusal(f, reason, detail), last)
		if !last && h.hasBody() {
			w.Flush()
			// Answered: a shutdown need not wait for the rest.
			s.flows.remove(f)
			drain(r.Body)
		}
	}
	f.decision = s.judge(f, nil)
	if !f.decision.Allowed() {
		refuse(f.decision.Reason, f.decision.Detail)
		return
	}
	if !s.mayPass() {
		refuse(policy.ReasonAuditUnavailable, "")
		return
	}
	if bodyFault != nil {
		// No need to find that out when half of it is with the origin.
		refuse(bodyFault.reason, bodyFault.detail)
		return
	}
	if err := s.recordObserved(f); err != nil && !s.cfg.AllowUnrecorded {
		s.log.Error("audit record lost", "flow", f.id, "error", err)
		refuse(policy.ReasonAuditUnavailable, "")
		return
	}
	prepareRequest(r, h, f.dest)
	if wantsWebSocket(r, h) {
		p.upgrade(w, r, c, f)
		return
	}
	p.forward.serve(w, r, c, h, f, bodyHere)
}

// mergeCancel derives a context from a that ends with b, with b's cause.
func mergeCancel(a, b context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(a)
	stop := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// handoff is the net.Listener through which net/http gets its connections.
type handoff struct {
	ch   chan *clientConn
	done chan struct{}
	once sync.Once

	mu      sync.Mutex
	clients map[net.Conn]*clientConn
}

func newHandoff() *handoff {
	return &handoff{ch: make(chan *clientConn), done: make(chan struct{}), clients: map[net.Conn]*clientConn{}}
}

func (h *handoff) offer(c *clientConn) bool {
	h.mu.Lock()
	h.clients[c.rc] = c
	h.mu.Unlock()
	select {
	case h.ch <- c:
		return true
	case <-h.done:
		h.client(c.rc)
		return false
	}
}

// client returns the owner of a connection that was accepted, once.
func (h *handoff) client(c net.Conn) *clientConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	owner := h.clients[c]
	delete(h.clients, c)
	return owner
}

// Accept implements net.Listener.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.ch:
		return c.rc, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }
