package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/policy"
)

// timeoutError is an error that says it is a timeout.
type timeoutError struct{}

func (timeoutError) Error() string { return "lookup on 192.0.2.53:53: i/o timeout" }
func (timeoutError) Timeout() bool { return true }

// R-P04 and the mapping of faults after the verdict: the client learns what kind
// it was and nothing of addresses or error texts; the record is no denial.
func TestUpstreamFaults(t *testing.T) {
	dial := func(err error) func(*world) {
		return func(w *world) {
			for _, port := range []string{":80", ":443"} {
				w.net.at(allowedIP+port, func(context.Context) (*net.TCPConn, error) {
					return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(allowedIP), Port: 443}, Err: err}
				})
			}
		}
	}
	resolve := func(err error) func(*world) { return func(w *world) { w.names.fail("allowed.test", err) } }
	for name, tt := range map[string]struct {
		prepare func(*world)
		status  int
		reason  string
		stage   string
	}{
		"no such name":     {resolve(&net.DNSError{Err: "no such host", Name: "allowed.test", Server: "192.0.2.53:53", IsNotFound: true}), 502, "dns_error", "dns"},
		"server failure":   {resolve(errors.New("server misbehaving 192.0.2.53")), 502, "dns_error", "dns"},
		"no address":       {func(w *world) { w.names.set("allowed.test") }, 502, "dns_error", "dns"},
		"resolver silent":  {resolve(timeoutError{}), 504, "dns_timeout", "dns"},
		"resolver expired": {resolve(context.DeadlineExceeded), 504, "dns_timeout", "dns"},
		"refused":          {dial(syscall.ECONNREFUSED), 502, "upstream_refused", "dial"},
		"reset":            {dial(syscall.ECONNRESET), 502, "upstream_reset", "dial"},
		"timed out":        {dial(syscall.ETIMEDOUT), 504, "upstream_timeout", "dial"},
		"dial expired":     {dial(context.DeadlineExceeded), 504, "upstream_timeout", "dial"},
		"unreachable":      {dial(syscall.ENETUNREACH), 504, "upstream_timeout", "dial"},
	} {
		for kind, request := range map[string]string{
			"connect": connectTo("allowed.test:443"), "get": get("http://allowed.test/"), "websocket": webSocketTo("allowed.test"),
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				w := newWorld(t)
				tt.prepare(w)
				c := w.dial(std)
				c.send(request)
				r, body := c.answer(http.MethodGet)
				assert.Equal(t, tt.status, r.StatusCode)
				assert.Equal(t, kind == "connect", r.Close)
				assert.Contains(t, body, `"reason":"`+tt.reason+`"`)
				assert.Contains(t, body, `"retryable":true`)
				assert.Empty(t, r.Header.Get("X-Proxy-Error"), "not a verdict")
				for _, secret := range []string{"192.0.2.53", allowedIP, "dial", "lookup", "no such host", "misbehaving"} {
					assert.NotContains(t, body+r.Status, secret)
				}
				port := map[string]string{"connect": "443", "get": "80", "websocket": "80"}[kind]
				w.wantRecords("egress.closed error " + tt.reason + " allowed.test:" + port + " [allowed] server|" + tt.reason)
				w.wantQueries("allowed.test")
				e := w.only(audit.EgressClosed)
				assert.Equal(t, tt.stage, e.Stage)
				assert.Equal(t, tt.status, e.HTTPStatus)
				assert.Equal(t, e.ID, r.Header.Get("X-Sluicegate-Event"))
			})
		}
	}
}

// astrayError is an error of a resolver that found a forbidden alias.
type astrayError struct{ reason policy.Reason }

func (astrayError) Error() string                 { return "CNAME localhost" }
func (e astrayError) PolicyReason() policy.Reason { return e.reason }

// An allowed name that is an alias of a forbidden one is refused, not broken; no
// other reason of the resolver is taken for a verdict.
func TestAliasNotAllowed(t *testing.T) {
	w := newWorld(t)
	w.names.fail("allowed.test", fmt.Errorf("resolving: %w", astrayError{policy.ReasonCNAMENotAllowed}))
	c := w.dial(std)
	c.send(get("http://allowed.test/"))
	r, body := c.answer(http.MethodGet)
	assert.Equal(t, 403, r.StatusCode)
	assert.Contains(t, body, `"reason":"cname_not_allowed"`)
	assert.NotContains(t, body, "localhost")
	e := w.only(audit.EgressDenied)
	assert.Equal(t, "deny cname_not_allowed dns", string(e.Decision)+" "+e.Reason+" "+e.Stage)

	w.names.fail("allowed.test", astrayError{policy.ReasonRule})
	c = w.dial(std)
	c.send(get("http://allowed.test/"))
	require.Equal(t, 502, c.status())
}

// The dial limit is for look-up and connect together.
func TestDialLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*world)
		reason  string
	}{
		"look-up": {func(w *world) {
			w.names.script("allowed.test", func(ctx context.Context, _ Query) (Answer, error) {
				<-ctx.Done()
				return Answer{}, errors.New("gave up")
			})
		}, "dns_timeout"},
		"connect": {func(w *world) { w.net.at(allowedIP+":443", blackhole) }, "upstream_timeout"},
		"connect to two": {func(w *world) {
			w.names.set("allowed.test", allowedIP, otherIP)
			w.net.at(allowedIP+":443", blackhole)
			w.net.at(otherIP+":443", blackhole)
		}, "upstream_timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Limits.Dial = 300 * time.Millisecond })
			tt.prepare(w)
			c := w.dial(std)
			c.send(connectTo("allowed.test:443"))
			c.want(504, "")
			w.wantRecords("egress.closed error " + tt.reason + " allowed.test:443 [allowed] server|" + tt.reason)
		})
	}
}

// R-F02: a client that leaves takes its look-up and its dial along.
func TestClientGoneWhileOpening(t *testing.T) {
	for kind, request := range map[string]string{
		"connect": connectTo("allowed.test:443"), "get": get("http://allowed.test/"), "websocket": webSocketTo("allowed.test"),
	} {
		for stage, prepare := range map[string]func(w *world, begun, ended chan struct{}){
			"look-up": func(w *world, begun, ended chan struct{}) {
				w.names.script("allowed.test", func(ctx context.Context, _ Query) (Answer, error) {
					close(begun)
					<-ctx.Done()
					close(ended)
					return Answer{}, &net.DNSError{Err: "operation was canceled"}
				})
			},
			"dial": func(w *world, begun, ended chan struct{}) {
				hole := func(ctx context.Context) (*net.TCPConn, error) {
					close(begun)
					defer close(ended)
					return blackhole(ctx)
				}
				w.net.at(allowedIP+":443", hole)
				w.net.at(allowedIP+":80", hole)
			},
		} {
			t.Run(kind+" "+stage, func(t *testing.T) {
				w := newWorld(t)
				begun, ended := make(chan struct{}), make(chan struct{})
				prepare(w, begun, ended)
				c := w.dial(std)
				c.send(request)
				<-begun
				require.NoError(t, c.Close())
				select {
				case <-ended:
				case <-time.After(w.cfg.Limits.Dial / 2):
					t.Fatal("it goes on for nobody")
				}
				w.wait("the place", func() bool { return w.Stats().Connections == 0 })
				w.finish()
				require.Len(t, w.rec.Events(), 1)
				e := w.rec.Events()[0]
				assert.Equal(t, "client_closed", e.Reason)
				assert.Equal(t, audit.End{Who: "client", Why: "client_closed"}, *e.End)
			})
		}
	}
}

// A response that breaks off is seen to, in every framing the client may get.
func TestResponseBreaksOff(t *testing.T) {
	for name, tt := range map[string]struct{ answer, proto string }{
		"of known length":   {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "1.1"},
		"chunked":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "1.1"},
		"bad chunk":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n", "1.1"},
		"bad trailer":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\nX: \x1b\r\n\r\n", "1.1"},
		"to an old client":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "1.0"},
		"to a web socket":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "ws"},
		"old, known length": {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			read := make(chan struct{})
			w.origin(allowedIP+":80", func(c *originConn) {
				c.originHead()
				c.write(tt.answer)
				if tt.proto == "1.0" {
					<-read
				}
			})
			c := w.dial(std)
			if tt.proto == "ws" {
				c.send(webSocketTo("allowed.test"))
			} else {
				c.send("GET http://allowed.test/ HTTP/" + tt.proto + "\r\nHost: allowed.test\r\n\r\n")
			}
			r, err := http.ReadResponse(c.br, nil)
			require.NoError(t, err)
			b := make([]byte, 4)
			_, err = io.ReadFull(r.Body, b)
			require.NoError(t, err)
			assert.Equal(t, "half", string(b))
			close(read)
			_, err = io.ReadFull(r.Body, make([]byte, 1))
			require.Error(t, err)
			assert.NotErrorIs(t, err, io.EOF, "it looks complete")
			w.wantRecords("egress.closed allow rule allowed.test:80 [allowed] server|upstream_reset")
		})
	}
}

// What an origin sends instead of a response is an upstream fault; the client's
// connection is kept.
func TestMalformedResponse(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":            "",
		"another protocol":   "SSH-2.0-OpenSSH_9.9\r\n",
		"half a head":        "HTTP/1.1 200 OK\r\nContent-Le",
		"NUL in a value":     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\x00b\r\n\r\nhi",
		"bare CR in a value": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\rSet-Cookie: b\r\n\r\nhi",
		"escape in a value":  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: \x1b[2J\r\n\r\nhi",
		"two lengths":        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
		"length no number":   "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi",
		"another coding":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"head of 1 MB":       "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"status 99":          "HTTP/1.1 099 X\r\nContent-Length: 2\r\n\r\nhi",
		"status 000":         "HTTP/1.1 000 X\r\nContent-Length: 2\r\n\r\nhi",
		"status 1000":        "HTTP/1.1 1000 X\r\nContent-Length: 2\r\n\r\nhi",
		"an upgrade":         "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.origin(allowedIP+":80", func(c *originConn) {
				c.originHead()
				c.write(answer)
			})
			c := w.dial(std)
			c.send(get("http://allowed.test/"))
			r, body := c.answer(http.MethodGet)
			assert.Equal(t, 502, r.StatusCode)
			assert.False(t, r.Close)
			assert.NotContains(t, body, "malformed HTTP")
			w.wantRecords("egress.closed error upstream_reset allowed.test:80 [allowed] server|upstream_reset")
		})
	}
}

// Interim responses are dropped, and there are not many of them.
func TestInterimResponses(t *testing.T) {
	hint := "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
	for n, status := range map[int]int{maxInterim: 200, maxInterim + 1: 502, 1000: 502} {
		w := newWorld(t)
		w.site(allowedIP+":80", func(string) string { return strings.Repeat(hint, n) + ok("hi") })
		c := w.dial(std)
		c.send(get("http://allowed.test/"))
		c.want(status, "")
		w.finish()
		assert.Len(t, w.rec.Events(), 1)
	}
}

// What an origin sends behind its response is nobody's.
func TestOriginSendsTooMuch(t *testing.T) {
	w := newWorld(t)
	ended := make(chan struct{}, 2)
	w.origin(allowedIP+":80", func(c *originConn) {
		if _, more := c.request(); !more {
			return
		}
		c.write(ok("hi") + ok("poison"))
		_, more := c.request()
		assert.False(t, more, "the connection was used again")
		ended <- struct{}{}
	})
	c := w.dial(std)
	for range 2 {
		c.send(get("http://allowed.test/"))
		c.want(200, "hi")
		<-ended
	}
	c.silent()
}
