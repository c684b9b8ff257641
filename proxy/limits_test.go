package proxy

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// R-P25: clients that say nothing cost only themselves.
func TestSilentClientsBlockNobody(t *testing.T) {
	w := newWorld(t)
	w.numbered()
	for range 20 {
		w.dial(std)
	}
	half := w.dial(std)
	half.send("GET http://allowed.test/")
	c := w.dial(std)
	c.send(get("http://allowed.test/"))
	c.want(200, "/")
}

// A silent client is dropped at the handshake limit, without a word.
func TestSilentClientIsDropped(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Handshake = 100 * time.Millisecond })
	assert.Empty(t, w.dial(std).rest())
	w.wantRecords()
}

// A head that does not arrive in time is answered and recorded, as the first on
// a connection and as a later one, and whatever trickles in meanwhile.
func TestSlowHead(t *testing.T) {
	for name, begin := range map[string]string{
		"connect":               "CONNECT evil.test:443 HTTP/1.1\r\nHost: ",
		"get":                   "GET http://evil.test/x HTTP/1.1\r\nX-Secret: ",
		"in the request line":   "GET http://evil.test/x",
		"behind an empty line":  "\r\nGET http://evil.test/x",
		"second, get":           get("http://allowed.test/") + "GET http://evil.test/x HTTP/1.1\r\nX-Secret: ",
		"second, connect":       get("http://allowed.test/") + "CONNECT evil.test:443 HTTP/1.1\r\n",
		"second after an empty": get("http://allowed.test/") + "\r\nGET http://evil.test/x HTTP/1.1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Limits.Handshake = 200 * time.Millisecond })
			w.numbered()
			c := w.dial(std)
			c.send(begin)
			want := 1
			if name[:3] == "sec" {
				want = 2
				c.want(200, "/")
			}
			trickle := make(chan struct{})
			go func() {
				defer close(trickle)
				for {
					if _, err := io.WriteString(c, "a"); err != nil {
						return
					}
					<-time.After(10 * time.Millisecond)
				}
			}()
			r := c.want(408, "")
			assert.True(t, r.Close)
			require.NoError(t, c.Close())
			<-trickle
			w.finish()
			require.Len(t, w.rec.Events(), want)
			e := w.rec.Events()[want-1]
			assert.Equal(t, "timeout", e.Reason)
			assert.Equal(t, "deny", e.Decision)
			assert.Equal(t, 408, e.HTTPStatus)
			assert.Equal(t, "listener", e.Stage)
			require.NotNil(t, e.Request)
			assert.NotEmpty(t, e.Request.Method)
		})
	}
}

// An upload that stops is answered with a timeout of the client's making.
func TestSlowBody(t *testing.T) {
	for name, body := range map[string]string{"known length": "Content-Length: 100\r\n\r\nab", "chunked": "Transfer-Encoding: chunked\r\n\r\n5\r\nab"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Limits.Idle = 200 * time.Millisecond })
			w.origin(allowedIP+":80", func(c *originConn) { _, _ = io.Copy(io.Discard, c.br) })
			c := w.dial(std)
			c.send("POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n" + body)
			r, _ := c.answer(http.MethodPost)
			assert.Equal(t, 408, r.StatusCode)
			w.wantRecords("egress.denied deny timeout allowed.test:80 [allowed]")
		})
	}
}

// R-P03, R-P02: tunnels on which nothing moves end at the idle limit, those of
// which one side has closed at the half-closed limit.
func TestIdleTunnels(t *testing.T) {
	for name, open := range map[string]func(*world) *client{
		"connect": func(w *world) *client {
			w.origin(allowedIP+":443", func(c *originConn) { _, _ = io.Copy(io.Discard, c.br); <-w.t.Context().Done() })
			return w.tunnelTo(std, "allowed.test:443")
		},
		"websocket": func(w *world) *client {
			w.origin(allowedIP+":80", func(c *originConn) {
				c.originHead()
				c.write(switching)
				_, _ = io.Copy(io.Discard, c.br)
				<-w.t.Context().Done()
			})
			c := w.dial(std)
			c.send(webSocketTo("allowed.test"))
			require.Equal(w.t, switching, c.head())
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := open(w)
			f := w.flow()
			active := time.Unix(0, f.active.Load())
			w.flows.sweep(active.Add(10*time.Minute-1), w.cfg.Limits)
			assert.Empty(t, f.ended())
			w.flows.sweep(active.Add(10*time.Minute), w.cfg.Limits)
			assert.Empty(t, c.ended())
			w.finish()
			assert.Equal(t, audit.End{Who: "gate", Why: "idle_timeout"}, *w.only(audit.EgressClosed).End)
		})
		t.Run(name+", half closed", func(t *testing.T) {
			w := newWorld(t)
			c := open(w)
			f := w.flow()
			require.NoError(t, c.CloseWrite())
			w.wait("the half-close", func() bool { return f.halfClosed.Load() != 0 })
			half := time.Unix(0, f.halfClosed.Load())
			w.flows.sweep(half.Add(30*time.Second-1), w.cfg.Limits)
			assert.Empty(t, f.ended())
			w.flows.sweep(half.Add(30*time.Second), w.cfg.Limits)
			assert.Empty(t, c.ended())
			w.finish()
			assert.Equal(t, audit.End{Who: "gate", Why: "half_closed_timeout"}, *w.only(audit.EgressClosed).End)
		})
	}
}

// A forwarded request on which nothing moves ends at the idle limit too: before
// its response, in the middle of it, and when nobody takes the upload.
func TestIdleRequests(t *testing.T) {
	sweepAt := func(w *world) {
		f := w.flow()
		w.wait("the limit to apply", f.timed.Load)
		w.flows.sweep(time.Now().Add(11*time.Minute), w.cfg.Limits)
	}
	t.Run("before the response", func(t *testing.T) {
		w := newWorld(t)
		asked := make(chan struct{})
		w.origin(allowedIP+":80", func(c *originConn) {
			c.originHead()
			close(asked)
			_, _ = io.Copy(io.Discard, c.br)
		})
		c := w.dial(std)
		c.send(get("http://allowed.test/"))
		<-asked
		sweepAt(w)
		c.want(504, "")
		w.wantRecords("egress.closed error idle_timeout allowed.test:80 [allowed] server|idle_timeout")
	})
	t.Run("in the middle of the response", func(t *testing.T) {
		w := newWorld(t)
		w.origin(allowedIP+":80", func(c *originConn) {
			c.originHead()
			c.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("half"))
			_, _ = io.Copy(io.Discard, c.br)
		})
		c := w.dial(std)
		c.send(get("http://allowed.test/"))
		c.head()
		c.read(len(chunk("half")))
		sweepAt(w)
		assert.Empty(t, c.ended(), "no end of the body")
		w.wantRecords("egress.closed allow rule allowed.test:80 [allowed] gate|idle_timeout")
	})
	t.Run("an upload that nobody takes", func(t *testing.T) {
		w := newWorld(t)
		stuck := make(chan struct{})
		w.origin(allowedIP+":80", func(c *originConn) {
			c.originHead()
			close(stuck)
			<-w.t.Context().Done()
		})
		c := w.dial(std)
		c.send("POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 67108864\r\n\r\n")
		go func() { _, _ = io.Copy(c, io.LimitReader(zeros{}, 1<<26)) }()
		<-stuck
		sweepAt(w)
		c.want(504, "")
		w.finish()
		assert.Equal(t, "idle_timeout", w.only(audit.EgressClosed).Reason)
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Connections over a limit are told so, with a record, and a place that is given
// back can be taken again.
func TestConnectionLimits(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"of all":     func(c *Config) { c.Limits.Connections = 2 },
		"of profile": func(c *Config) { c.Limits.PerProfile = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change)
			w.numbered()
			first, second := w.dial(std), w.dial(std)
			first.send(get("http://allowed.test/"))
			first.want(200, "/")
			second.send(get("http://allowed.test/"))
			second.want(200, "/")
			third := w.dial(std)
			r, body := third.answer(http.MethodGet)
			assert.Equal(t, 503, r.StatusCode)
			assert.Contains(t, body, `"reason":"limit"`)
			assert.Empty(t, third.rest())
			e := w.only(audit.EgressDenied)
			assert.Equal(t, "limit", e.Reason)
			assert.Equal(t, "listener", e.Stage)
			assert.NotZero(t, e.Client.Port)

			other := w.dial(twin)
			other.send(get("http://allowed.test/"))
			if name == "of all" {
				assert.Equal(t, 503, other.status())
			} else {
				other.want(200, "/")
			}
			// A place is free: the next one is served.
			require.NoError(t, first.Close())
			w.wait("the place", func() bool { return w.profiles[std].conns.Load() == 1 })
			fourth := w.dial(std)
			fourth.send(get("http://allowed.test/"))
			fourth.want(200, "/")
		})
	}
}

// Places are given back however a connection ends.
func TestPlacesAreGivenBack(t *testing.T) {
	w := newWorld(t)
	w.numbered()
	w.origin(allowedIP+":443", echo)
	w.net.at(otherIP+":443", refuse)
	for _, send := range []string{
		"", "G", "\x05\x01\x00", get("http://evil.test/"), get("http://allowed.test/"), connectTo("allowed.test:443"),
		connectTo("evil.test:443"), connectTo("other.test:443"), get("http://allowed.test/") + connectTo("allowed.test:443"),
		get("http://allowed.test/") + "\x00", get("http://allowed.test/") + connectTo("evil.test:443"), webSocketTo("allowed.test"),
		post("http://evil.test/", "body"), "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 9\r\n\r\nx",
	} {
		c := w.dial(std)
		c.send(send)
		require.NoError(t, c.CloseWrite())
		c.ended()
		require.NoError(t, c.Close())
	}
	w.wait("all places", func() bool { return w.Stats().Connections == 0 })
	w.wait("all flows", func() bool { return w.Stats().Flows == 0 })
	stats := w.Stats()
	assert.NotZero(t, stats.Opened)
	assert.NotZero(t, stats.Refused)
}
