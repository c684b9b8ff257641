package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// R-P24, R-P07: the origin gets exactly these bytes.
func TestForwardedBytes(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"nothing is added": {
			"GET http://allowed.test/k?X-Sig=abc HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
			"GET /k?X-Sig=abc HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		},
		"the port of the target alone": {
			"GET http://allowed.test:80/k HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
			"GET /k HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		},
		"the port of the Host alone": {
			"GET http://allowed.test/k HTTP/1.1\r\nHost: Allowed.Test:80\r\n\r\n",
			"GET /k HTTP/1.1\r\nHost: Allowed.Test:80\r\n\r\n",
		},
		"another Host": {
			"GET http://allowed.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		},
		"no path": {
			"GET http://allowed.test HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		},
		"query without path": {
			"GET http://allowed.test?a=b HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
			"GET /?a=b HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		},
		"the path as it is": {
			"GET http://allowed.test//a/../b/./%2e%2F%41;x=1/?&a=%zz&=;+? HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
			"GET //a/../b/./%2e%2F%41;x=1/?&a=%zz&=;+? HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		},
		"HTTP/1.0 becomes 1.1": {
			"GET http://allowed.test/ HTTP/1.0\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		},
		"of the hop": {
			"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic dTpw\r\n" +
				"Keep-Alive: timeout=5\r\nTE: gzip\r\nTrailer: X\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		},
		"end to end": {
			"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nAccept-Encoding: br\r\nAuthorization: Bearer x\r\nConnection: Authorization, Cookie, Host\r\n" +
				"Cookie: a=b\r\nPragma: no-cache\r\nUser-Agent: curl/8\r\nX-A: 1\r\nX-A: 2\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: allowed.test\r\nUser-Agent: curl/8\r\nAccept-Encoding: br\r\nAuthorization: Bearer x\r\nCookie: a=b\r\nPragma: no-cache\r\nX-A: 1\r\nX-A: 2\r\n\r\n",
		},
		"forwarding fields of the client": {
			"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nForwarded: for=1\r\nVia: 1.1 x\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: allowed.test\r\nForwarded: for=1\r\nVia: 1.1 x\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
		},
		"body of known length": {
			"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 004\r\n\r\nbody",
			"POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\n\r\nbody",
		},
		"empty body": {
			"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 0\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 0\r\n\r\n",
		},
		"chunked body, made anew": {
			"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: CHUNKED\r\n\r\n004;x=y\r\nbody\r\n0;z\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
		},
		"trailers, announced and not": {
			"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 1\r\nHost: evil.test\r\nContent-Length: 9\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
		},
		"any method": {
			"M-SEARCH http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
			"M-SEARCH / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.site(allowedIP+":80", func(string) string { return ok("hi") })
			c := w.dial(std)
			c.send(tt.in)
			c.want(200, "hi")
			w.wantRecords(closed80)
			assert.Equal(t, []string{tt.want}, o.requests())
		})
	}
}

// The client gets what the origin sent, but for the fields of the hop.
func TestForwardedAnswer(t *testing.T) {
	for name, tt := range map[string]struct{ origin, want string }{
		"nothing is added": {
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
		},
		"fields": {
			"HTTP/1.1 404 Gone Fishing\r\nContent-Length: 2\r\nContent-Type: x\r\nDate: y\r\nServer: z\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nhi",
			"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nContent-Type: x\r\nDate: y\r\nServer: z\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nhi",
		},
		"of the hop": {
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
		},
		"the origin ends its connection": {
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
		},
		"compressed, as it is": {
			"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
			"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
		},
		"chunked": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		},
		"no content": {
			"HTTP/1.1 204 No Content\r\n\r\n",
			"HTTP/1.1 204 No Content\r\n\r\n",
		},
		"not modified": {
			"HTTP/1.1 304 Not Modified\r\nEtag: x\r\n\r\n",
			"HTTP/1.1 304 Not Modified\r\nEtag: x\r\n\r\n",
		},
		"redirect, not followed": {
			"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://evil.test/\r\n\r\n",
			"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://evil.test/\r\n\r\n",
		},
		"R-P21 early hints": {
			"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		},
		"unasked 100": {
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.site(allowedIP+":80", func(string) string { return tt.origin })
			c := w.dial(std)
			for range 2 { // the connection stays in step
				c.send(get("http://allowed.test/"))
				assert.Equal(t, tt.want, c.read(len(tt.want)))
			}
			c.silent()
			w.wantRecords(closed80, closed80)
		})
	}
}

// Trailers of a response pass, but for those that a client could take for
// something else.
func TestForwardedTrailers(t *testing.T) {
	for name, announced := range map[string]string{"announced": "Trailer: X-Sum, Transfer-Encoding\r\n", "not announced": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.site(allowedIP+":80", func(string) string {
				return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + strings.Replace(announced, "Transfer-Encoding", "X-More", 1) + "\r\n2\r\nhi\r\n0\r\n" +
					"X-Sum: 1\r\nConnection: x\r\nContent-Length: 9\r\nUpgrade: h2c\r\n\r\n"
			})
			c := w.dial(std)
			for range 2 {
				c.send(get("http://allowed.test/"))
				r, body := c.answer(http.MethodGet)
				assert.Equal(t, "hi", body)
				assert.Equal(t, "1", r.Trailer.Get("X-Sum"))
				for _, name := range []string{"Connection", "Content-Length", "Upgrade"} {
					assert.Empty(t, r.Trailer.Get(name), name)
				}
			}
			w.wantRecords(closed80, closed80)
		})
	}
}

// A body that ends with the connection is chunked for the client, or ends with
// its connection too.
func TestForwardedAnswerUntilClose(t *testing.T) {
	for proto, want := range map[string]string{
		"1.1": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		"1.0": "HTTP/1.0 200 OK\r\n\r\nhi",
	} {
		t.Run(proto, func(t *testing.T) {
			w := newWorld(t)
			w.origin(allowedIP+":80", func(c *originConn) {
				c.request()
				c.write("HTTP/1.0 200 OK\r\n\r\nhi")
			})
			c := w.dial(std)
			c.send("GET http://allowed.test/ HTTP/" + proto + "\r\nHost: allowed.test\r\n\r\n")
			assert.Equal(t, want, c.read(len(want)))
			if proto == "1.0" {
				assert.Empty(t, c.rest())
			}
			w.wantRecords(closed80)
			assert.Equal(t, int64(2), *w.only(audit.EgressClosed).BytesIn)
		})
	}
}

// R-P22: the length of a HEAD's answer survives, and the connection too.
func TestHead(t *testing.T) {
	w := newWorld(t)
	w.site(allowedIP+":80", func(raw string) string {
		if strings.HasPrefix(raw, "HEAD /chunked") {
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		}
		if strings.HasPrefix(raw, "HEAD") {
			return "HTTP/1.1 200 OK\r\nContent-Length: 123456\r\n\r\n"
		}
		return ok("hi")
	})
	c := w.dial(std)
	c.send("HEAD http://allowed.test/blob HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
	assert.Equal(t, "HTTP/1.1 200 OK\r\nContent-Length: 123456\r\n\r\n", c.head())
	c.send("HEAD http://allowed.test/chunked HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
	assert.Equal(t, "HTTP/1.1 200 OK\r\n\r\n", c.head())
	c.send(get("http://allowed.test/"))
	c.want(200, "hi")
	w.wantRecords(closed80, closed80, closed80)
}

// R-P23: large heads pass unchanged up to the limit, and end there.
func TestLargeHead(t *testing.T) {
	cookies := strings.Repeat("Cookie: "+strings.Repeat("c", 1490)+"\r\n", 40)
	for name, fields := range map[string]string{
		"one of 20000 bytes": "Cookie: " + strings.Repeat("c", 20000) + "\r\n", "forty of 60000 bytes": cookies,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.site(allowedIP+":80", func(string) string { return ok("hi") })
			c := w.dial(std)
			for range 2 {
				c.send("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n" + fields + "\r\n")
				c.want(200, "hi")
			}
			w.wantRecords(closed80, closed80)
			assert.Equal(t, "GET / HTTP/1.1\r\nHost: allowed.test\r\n"+fields+"\r\n", o.requests()[1])
		})
	}
	var many strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&many, "X-%d: a\r\n", i)
	}
	for name, fields := range map[string]string{"too many": many.String(), "too long": "Cookie: " + strings.Repeat("a", 2000000)} {
		for _, method := range []string{"GET http://allowed.test/", "CONNECT allowed.test:443"} {
			t.Run(name+" "+method, func(t *testing.T) {
				w := newWorld(t)
				w.site(allowedIP+":80", func(string) string { return ok("hi") })
				c := w.dial(std)
				c.send(get("http://allowed.test/"))
				c.want(200, "hi")
				go func() { _, _ = c.Write([]byte(method + " HTTP/1.1\r\nHost: allowed.test\r\n" + fields)) }()
				r, _ := c.answer(http.MethodGet)
				assert.Equal(t, 431, r.StatusCode)
				assert.True(t, r.Close)
				w.finish()
				require.Len(t, w.rec.Events(), 2)
				e := w.rec.Events()[1]
				assert.Equal(t, "too_large", e.Reason)
				assert.Equal(t, "allowed.test", e.Dest)
			})
		}
	}
}

// A tunnel and a forwarded request to an IPv6 literal that a rule opens (R-P09).
func TestIPv6Literal(t *testing.T) {
	w := newWorld(t)
	w.load("version: 1\nproduct: agent\nprofiles:\n  std:\n    listen: {port: 18001}\n    allow:\n      - {ip: \"::1\", ports: [8080], id: dev}\n")
	o := w.site("[::1]:8080", func(string) string { return ok("hi") })
	c := w.dial(std)
	c.send(get("http://[::1]:8080/"))
	c.want(200, "hi")
	w.wait("the record", func() bool { return len(w.rec.Events()) == 1 })
	c = w.tunnelTo(std, "[::1]:8080")
	c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	c.want(200, "hi")
	require.NoError(t, c.Close())
	w.wait("the end", func() bool { return w.flows.len() == 0 })
	w.wantRecords(
		"egress.closed allow rule [::1]:8080 [dev] server|upstream_closed",
		"egress.opened allow rule [::1]:8080 [dev]",
		"egress.closed allow rule [::1]:8080 [dev] client|client_closed",
	)
	assert.Equal(t, "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", o.requests()[0])
	w.wantQueries()
}
