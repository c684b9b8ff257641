package proxy

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this file each hold one default of goproxy or net/http that would
// be unsafe here. What it would do is in the comment.

// goproxy takes a parent proxy from the environment, for both kinds of requests.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	trap, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var caught atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := trap.Accept()
			if err != nil {
				return
			}
			caught.Add(1)
			_ = c.Close()
		}
	}()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://"+trap.Addr().String())
		t.Setenv(strings.ToLower(name), "http://"+trap.Addr().String())
	}
	t.Setenv("NO_PROXY", "")
	w := newWorld(t)
	w.numbered()
	w.origin(allowedIP+":443", echo)
	c := w.dial(std)
	c.send(get("http://allowed.test/1"))
	c.want(200, "/1")
	c.send(webSocketTo("allowed.test"))
	c.want(200, "/ws")
	c.send(connectTo("allowed.test:443"))
	require.Equal(t, established, c.head())
	assert.Nil(t, w.profiles[std].forward.proxy.ConnectDial)
	assert.Nil(t, w.profiles[std].forward.proxy.Tr.Proxy)
	w.hangUp()
	require.NoError(t, trap.Close())
	<-done
	assert.Zero(t, caught.Load())
}

// judged is a request as the handler would pass it on, without its exchange.
func judged(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RequestURI = ""
	return r
}

// goproxy accepts a CONNECT that no handler matched.
func TestForwarderRejectsConnect(t *testing.T) {
	w := newWorld(t)
	fw := w.profiles[std].forward
	for name, r := range map[string]*http.Request{
		"authority": judged("CONNECT", "allowed.test:443"),
		"hijack":    {Method: "CONNECT", URL: &url.URL{Host: "allowed.test:443"}, Host: "allowed.test:443"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fw.proxy.ServeHTTP(rw, r) }))
			defer srv.Close()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			require.NoError(t, err)
			c := newClient(t, conn.(*net.TCPConn))
			defer func() { _ = c.Close() }()
			c.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			assert.Empty(t, c.ended(), "closed without a word")
		})
	}
	w.wantRecords()
	w.wantQueries()
	w.wantDials()
}

// A request that reaches goproxy without having been judged goes nowhere: its
// own transport can't dial, and skips TLS verification no more.
func TestForwarderNeedsAnExchange(t *testing.T) {
	w := newWorld(t)
	fw := w.profiles[std].forward
	for _, target := range []string{"http://allowed.test/", "https://allowed.test/"} {
		rec := httptest.NewRecorder()
		fw.proxy.ServeHTTP(rec, judged("GET", target))
		assert.Equal(t, http.StatusInternalServerError, rec.Code)
		_, err := fw.proxy.Tr.RoundTrip(judged("GET", target))
		require.Error(t, err)
	}
	rec := httptest.NewRecorder()
	fw.proxy.ServeHTTP(rec, judged("GET", "/origin-form"))
	assert.Equal(t, http.StatusBadRequest, rec.Code)
	assert.Empty(t, rec.Body.String())
	assert.Nil(t, fw.proxy.Tr.TLSClientConfig)
	w.wantRecords()
	w.wantDials()
}

// goproxy and net/http originate TLS for an https URL.
func TestNoTLSOrigination(t *testing.T) {
	w := newWorld(t)
	o := w.origin(allowedIP+":443", func(c *originConn) { _, _ = c.br.ReadByte() })
	p := w.profiles[std].forward.pools.acquire("x")
	defer w.profiles[std].forward.pools.release(p)
	_, err := p.transport.RoundTrip(judged("GET", "https://allowed.test/"))
	require.ErrorContains(t, err, "TLS is not originated")
	assert.Zero(t, o.accepted())

	// R-P15: the client is told what to do instead.
	c := w.dial(std)
	c.send("GET https://allowed.test/a HTTP/1.1\r\nHost: allowed.test\r\nAuthorization: Bearer x\r\n\r\n")
	r, body := c.answer(http.MethodGet)
	assert.Equal(t, 400, r.StatusCode)
	assert.Contains(t, body, "use CONNECT")
	w.wantRecords("egress.denied error bad_scheme allowed.test:443")
	e := w.rec.Events()[0]
	assert.Equal(t, "https", e.Request.Scheme)
	w.wantQueries()
}

// goproxy appends :80 where it finds no port, also to a CONNECT.
func TestNoPortIsInvented(t *testing.T) {
	for _, target := range []string{"allowed.test", "allowed.test:", ":443", "/x", "[::1]"} {
		w := newWorld(t)
		c := w.dial(any_)
		c.send("CONNECT " + target + " HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n")
		assert.Contains(t, c.rest(), "HTTP/1.1 400 ")
		w.finish()
		assert.Equal(t, "error", w.rec.Events()[0].Decision)
		w.wantQueries()
		w.wantDials()
	}
}

// The dialers get the judged address and nothing of what net/http asks for.
func TestForwarderIgnoresTheAddressAskedFor(t *testing.T) {
	w := newWorld(t)
	w.numbered()
	c := w.dial(std)
	c.send("GET http://allowed.test:80/ HTTP/1.1\r\nHost: evil.test:8080\r\n\r\n")
	c.want(200, "/")
	w.wantDials(allowedIP + ":80")
	_, err := w.profiles[std].forward.dial(t.Context(), "tcp", "127.0.0.1:80")
	require.ErrorContains(t, err, "without its flow")
}
