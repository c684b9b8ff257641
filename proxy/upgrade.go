package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	"sluicegate/policy"
)

// upgrade serves a request to become a WebSocket. It gets a connection of its
// own; only a 101 from the origin turns it into a tunnel, every other answer is
// an ordinary response.
func (p *profileServer) upgrade(w *reply, r *http.Request, c *clientConn, f *flow) {
	s := p.s
	conn, found, fail := s.open(r.Context(), f, f.decision)
	f.apply(found)
	if fail != nil {
		w.refuse(s.recordRefusal(f, fail.reason, fail.detail), false)
		return
	}
	defer func() { _ = conn.Close() }()
	f.touch(time.Now())
	f.timed.Store(true)
	defer f.timed.Store(false)
	stop := context.AfterFunc(r.Context(), func() { _ = conn.SetDeadline(past) })
	defer stop()
	resp, br, err := askUpgrade(conn, r)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols && !stop() {
		err = context.Cause(r.Context())
	}
	if err != nil {
		s.log.Debug("upgrade failed", "flow", f.id, "error", err)
		w.refuse(s.recordRefusal(f, upgradeFailure(r.Context(), f, err), ""), false)
		return
	}
	f.touch(time.Now())
	f.status, f.stage = resp.StatusCode, ""
	if resp.StatusCode == http.StatusSwitchingProtocols {
		p.webSocket(w, resp, br, conn, c, f)
		return
	}
	s.opened.Add(1)
	p.plainAnswer(w, r, resp, c, f)
}

func upgradeFailure(ctx context.Context, f *flow, err error) policy.Reason {
	var timeout net.Error
	switch {
	case f.ended() != "":
		return f.ended()
	case ctx.Err() != nil:
		return policy.ReasonClientClosed
	case errors.As(err, &timeout) && timeout.Timeout():
		return policy.ReasonUpstreamTimeout
	default:
		return policy.ReasonUpstreamReset
	}
}

// askUpgrade sends the request and reads the head of the final answer.
func askUpgrade(conn *net.TCPConn, r *http.Request) (*http.Response, *bufio.Reader, error) {
	r.Body, r.ContentLength = http.NoBody, 0
	if err := r.Write(conn); err != nil {
		return nil, nil, err
	}
	limited := &io.LimitedReader{R: conn, N: maxResponseHeader}
	br := bufio.NewReader(limited)
	for range maxInterim + 1 {
		resp, err := http.ReadResponse(br, r)
		if err != nil {
			return nil, nil, err
		}
		switch code := resp.StatusCode; {
		case code == http.StatusSwitchingProtocols:
			if !hasToken(resp.Header["Upgrade"], "websocket") {
				return nil, nil, errUpgrade
			}
			if !validFields(resp.Header) {
				return nil, nil, errResponse
			}
		case code >= 100 && code <= 199:
			continue
		default:
			if err := faultOfResponse(resp); err != nil {
				return nil, nil, err
			}
		}
		limited.N = math.MaxInt64
		return resp, br, nil
	}
	return nil, nil, errInterim
}

// plainAnswer passes an answer that is no upgrade.
func (p *profileServer) plainAnswer(w *reply, r *http.Request, resp *http.Response, c *clientConn, f *flow) {
	removeHopByHop(resp.Header)
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.in = func(n int) {
		f.in.Add(int64(n))
		f.touch(time.Now())
	}
	w.WriteHeader(resp.StatusCode)
	_, err := io.Copy(w, resp.Body)
	who, why := "server", policy.ReasonUpstreamClosed
	switch {
	case err == nil:
	case f.ended() != "":
		who, why = "gate", f.ended()
	case w.err != nil, r.Context().Err() != nil:
		who, why = "client", policy.ReasonClientClosed
	default:
		why = policy.ReasonUpstreamReset
	}
	p.s.recordClosed(f, who, why)
	if err != nil {
		breakOff(r, c)
	}
}

// webSocket takes the client's connection from net/http and relays.
func (p *profileServer) webSocket(w *reply, resp *http.Response, br *bufio.Reader, conn *net.TCPConn, c *clientConn, f *flow) {
	s := p.s
	// Observed traffic was recorded before the dial.
	if !f.decision.Observed() {
		if err := s.recordOpened(f); err != nil && !s.cfg.AllowUnrecorded {
			s.log.Error("audit record lost", "flow", f.id, "error", err)
			w.refuse(s.recordRefusal(f, policy.ReasonAuditUnavailable, ""), false)
			return
		}
	}
	if _, _, err := http.NewResponseController(w.ResponseWriter).Hijack(); err != nil {
		s.log.Error("taking over a connection", "flow", f.id, "error", err)
		s.recordRefusal(f, policy.ReasonInternal, "")
		panic(http.ErrAbortHandler)
	}
	// From here the connection is ours: net/http neither closes nor counts it.
	defer c.end()
	w.wrote = true
	s.opened.Add(1)
	_ = c.rc.socket.SetDeadline(time.Time{})
	var greeting bytes.Buffer
	keepUpgrade(resp.Header)
	greeting.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = resp.Header.Write(&greeting)
	greeting.WriteString("\r\n")
	// Frames that arrived with the answer follow it at once.
	glued, _ := br.Peek(br.Buffered())
	greeting.Write(glued)
	f.in.Add(int64(len(glued)))
	early := append([]byte(nil), c.rc.in...)
	who, why := s.tunnel(f, c.rc.socket, conn, greeting.Bytes(), early, tlsAny)
	s.recordClosed(f, who, why)
}

// keepUpgrade leaves of the hop's fields what the handshake needs. There is no
// body whose length could be told (RFC 9110 section 8.6).
func keepUpgrade(h http.Header) {
	removeHopByHop(h)
	h.Del("Content-Length")
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", "websocket")
}
