package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sluicegate/policy"
)

// exchange is one forwarded request on its way through goproxy.
type exchange struct {
	f *flow
	c *clientConn
	h *head
	w *reply
	// first is the decision on the name; the flow's own may change meanwhile.
	first policy.Decision
	// ctx ends when the client leaves or the flow is ended.
	ctx  context.Context
	pool *pool
	// body is the request's, nil if it has none; bodyHere tells that it had
	// arrived before it was sent on.
	body     *requestBody
	bodyHere bool
	// failed is set when the answer is a refusal of ours; complete when the
	// response was read to its end, truncated when it broke off.
	failed    policy.Reason
	complete  bool
	truncated error

	conn    *upstreamConn // the one in use
	interim atomic.Int32  // 1xx responses
}

type exchangeKey struct{}

// upstreamConn is a connection with what was found out when it was dialled: a
// later request on it was not judged by address again.
type upstreamConn struct {
	*net.TCPConn
	found *outcome
}

// openError carries a failure of open through net/http.
type openError struct {
	fail  *failure
	found *outcome
}

func (e *openError) Error() string { return "proxy: " + string(e.fail.reason) }

// Faults of an origin's response.
var (
	errUpgrade  = errors.New("proxy: upgrade without a request for it")
	errInterim  = errors.New("proxy: too many interim responses")
	errResponse = errors.New("proxy: malformed response")
)

// trace follows what net/http does for the exchange.
func (x *exchange) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			x.conn, _ = i.Conn.(*upstreamConn)
			if x.conn != nil && !x.c.l.s.goLive(x.f, standing{addrs: x.conn.found.resolved}) {
				x.f.cancel(&endCause{policy.ReasonRevoked})
			}
		},
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			if x.interim.Add(1) > maxInterim {
				return errInterim
			}
			return nil
		},
	}
}

// settle takes over what dialling found out, once the round trip has returned.
func (x *exchange) settle(err error) {
	var of *openError
	switch {
	case errors.As(err, &of):
		x.f.apply(of.found)
	case x.conn != nil:
		x.f.apply(x.conn.found)
	}
}

// faultOfResponse checks what net/http lets through of a response's head.
func faultOfResponse(r *http.Response) error {
	switch {
	case r.StatusCode == http.StatusSwitchingProtocols:
		return errUpgrade
	case r.StatusCode < 200 || r.StatusCode > 999 || !validFields(r.Header):
		return errResponse
	default:
		return nil
	}
}

// failure names the cause of an exchange without a response.
func (x *exchange) failure(err error) (policy.Reason, string) {
	if ft := x.c.rc.faultOfBody(); ft != nil {
		return ft.reason, ft.detail
	}
	if reason := x.f.ended(); reason != "" {
		return reason, ""
	}
	if reason := x.body.failed(); reason != "" {
		return reason, ""
	}
	var of *openError
	var timeout net.Error
	switch {
	case errors.As(err, &of):
		return of.fail.reason, of.fail.detail
	case errors.Is(err, context.Canceled):
		return policy.ReasonClientClosed, ""
	case errors.As(err, &timeout) && timeout.Timeout():
		return policy.ReasonUpstreamTimeout, ""
	default:
		return policy.ReasonUpstreamReset, ""
	}
}

// end says who ended an exchange that got a response, and why.
func (x *exchange) end() (string, policy.Reason) {
	if ft := x.c.rc.faultOfBody(); ft != nil {
		return "client", ft.reason
	}
	reason := x.f.ended()
	switch {
	case x.complete && x.w.err == nil:
		return "server", policy.ReasonUpstreamClosed
	case reason != "":
		return "gate", reason
	case x.w.err != nil, x.ctx.Err() != nil:
		return "client", policy.ReasonClientClosed
	default:
		return "server", policy.ReasonUpstreamReset
	}
}

// passRest passes over what is left of the request after its response. The
// transport may be reading it still: that must be over before the handler
// returns, or its read and the server's next one meet.
func (x *exchange) passRest() {
	if x.failed == "" {
		x.c.passOver(x.h, false)
	}
	x.body.stop()
	drain(x.body.r)
}

// requestBody is what a client sends. net/http's transport reads it on another
// goroutine, perhaps after the response.
type requestBody struct {
	r      io.Reader
	f      *flow
	closed atomic.Bool
	err    atomic.Pointer[error]

	mu sync.Mutex // held while reading
}

// Close does not close the server's body, which would read on to its end and
// hold up the response meanwhile: the server does that after its reply.
func (b *requestBody) Close() error {
	b.closed.Store(true)
	return nil
}

// stop returns when the transport reads no more.
func (b *requestBody) stop() {
	b.closed.Store(true)
	b.mu.Lock()
	defer b.mu.Unlock()
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.r.Read(p)
	b.f.out.Add(int64(n))
	if n > 0 {
		b.f.touch(time.Now())
	}
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) { //nolint:errorlint // io.EOF is returned bare
		b.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

// failed is the reason why the client's body broke off, "" if it did not. A nil
// body never does.
func (b *requestBody) failed() policy.Reason {
	if b == nil {
		return ""
	}
	switch err := b.err.Load(); {
	case err == nil:
		return ""
	case errors.Is(*err, os.ErrDeadlineExceeded):
		return policy.ReasonTimeout
	default:
		return policy.ReasonClientClosed
	}
}

// responseBody notices how a response ends.
type responseBody struct {
	io.ReadCloser
	x    *exchange
	resp *http.Response
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF: //nolint:errorlint // io.EOF is returned bare
		b.x.complete = true
		cleanTrailer(b.resp.Trailer)
	case err != nil:
		b.x.truncated = err
	}
	return n, err
}
