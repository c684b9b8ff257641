package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"github.com/elazarl/goproxy"
)

// Bounds of what an origin may send before its response.
const (
	// maxResponseHeader is for the heads of a response, in bytes.
	maxResponseHeader = 256 << 10
	// maxInterim is how many 1xx responses may come before the final one.
	maxInterim = 16
)

// forwarder forwards judged plain requests of one profile by goproxy. All of
// the library's defaults that are unsafe here are off: the parent proxy from
// the environment, the transport without TLS verification, CONNECT without a
// handler, raw dial errors, buffered bodies, its printing logger.
type forwarder struct {
	s     *Server
	proxy *goproxy.ProxyHttpServer
	pools pools
}

func newForwarder(s *Server) *forwarder {
	fw := &forwarder{s: s}
	fw.pools.dial = fw.dial
	fw.pools.idle = s.cfg.Limits.Idle
	p := goproxy.NewProxyHttpServer()
	// Never used: each request brings its own. If it were, it could not dial.
	p.Tr = newTransport(func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("proxy: request without its flow")
	}, s.cfg.Limits.Idle)
	p.Verbose = false
	p.Logger = quiet{s}
	p.KeepAcceptEncoding = true
	p.AllowHTTP2 = false
	p.ConnectDial = nil
	p.ConnectDialWithReq = func(*http.Request, string, string) (net.Conn, error) {
		return nil, errors.New("proxy: CONNECT does not pass here")
	}
	p.NonproxyHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
	})
	p.OnRequest().HandleConnect(goproxy.AlwaysReject)
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		ctx.RoundTripper = goproxy.RoundTripperFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
			return fw.roundTrip(r)
		})
		return r, nil
	})
	fw.proxy = p
	return fw
}

// quiet sends goproxy's warnings to the operator's debug log: they may hold
// what a client sent.
type quiet struct{ s *Server }

func (q quiet) Printf(format string, _ ...any) {
	q.s.log.Debug("goproxy", "message", strings.TrimSpace(format))
}

func (fw *forwarder) close() { fw.pools.close() }

// serve forwards one judged request and records its end.
// bodyHere tells that the request's body has arrived already.
func (fw *forwarder) serve(w *reply, r *http.Request, c *clientConn, h *head, f *flow, bodyHere bool) {
	x := &exchange{f: f, c: c, h: h, w: w, first: f.decision, ctx: r.Context(), bodyHere: bodyHere}
	x.pool = fw.pools.acquire(f.snapshot.Digest())
	defer fw.pools.release(x.pool)
	if r.Body != nil && r.Body != http.NoBody {
		x.body = &requestBody{r: r.Body, f: f}
		r.Body = x.body
	}
	// From here on the idle limit applies: to the origin's silence, to a body
	// that nobody takes, to a response that stalls.
	f.touch(time.Now())
	f.timed.Store(true)
	defer f.timed.Store(false)
	fw.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	if x.failed == "" {
		who, why := x.end()
		fw.s.recordClosed(f, who, why)
	}
	if x.truncated != nil {
		breakOff(r, c)
	}
	if x.body != nil && !c.rc.hasPassed() {
		w.Flush()
		// Answered: a shutdown need not wait for the rest.
		fw.s.flows.remove(f)
		x.passRest()
	}
}

// breakOff ends a response that is incomplete so that the client can see it:
// net/http would end it as if it were whole.
func breakOff(r *http.Request, c *clientConn) {
	if !r.ProtoAtLeast(1, 1) {
		// The end of the connection may be all that ends the body.
		c.rc.abort()
	}
	panic(http.ErrAbortHandler)
}

// roundTrip sends the request and cleans the response. A failure comes back as
// the response the client shall see, recorded, so that goproxy has no error to
// show.
func (fw *forwarder) roundTrip(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, errors.New("proxy: request without its flow")
	}
	resp, err := x.pool.transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), x.trace())))
	if err == nil {
		if err = faultOfResponse(resp); err != nil {
			_ = resp.Body.Close()
		}
	}
	x.settle(err)
	if err != nil {
		x.f.timed.Store(false)
		reason, detail := x.failure(err)
		x.failed = reason
		fw.s.log.Debug("forwarding failed", "flow", x.f.id, "reason", reason, "error", err)
		last := x.c.passOver(x.h, x.bodyHere || x.c.rc.hasPassed())
		return fw.s.recordRefusal(x.f, reason, detail).response(r, last), nil
	}
	fw.s.opened.Add(1)
	x.f.touch(time.Now())
	x.f.status, x.f.stage = resp.StatusCode, ""
	x.w.in = func(n int) {
		x.f.in.Add(int64(n))
		x.f.touch(time.Now())
	}
	removeHopByHop(resp.Header)
	cleanTrailer(resp.Trailer)
	resp.Body = &responseBody{resp.Body, x, resp}
	return resp, nil
}

// dial is the transports' only way out. The address it is given is ignored: the
// flow's destination was judged, and the same.
func (fw *forwarder) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, errors.New("proxy: dial without its flow")
	}
	// net/http goes on dialling for a request that is over, in case another one
	// can use the connection. Here a client that leaves takes its dial along.
	ctx, stop := mergeCancel(ctx, x.ctx)
	defer stop()
	conn, found, fail := fw.s.open(ctx, x.f, x.first)
	if fail != nil {
		return nil, &openError{fail, found}
	}
	return &upstreamConn{conn, found}, nil
}

// response makes a refusal the response of a round trip.
func (r *refusal) response(req *http.Request, last bool) *http.Response {
	r.preferHTML(req.Header.Get("Accept"))
	h := http.Header{}
	r.fill(h, last)
	return &http.Response{
		StatusCode: r.status, ProtoMajor: 1, ProtoMinor: 1, Header: h, Request: req,
		Body: io.NopCloser(bytes.NewReader(r.body)), ContentLength: int64(len(r.body)),
	}
}
