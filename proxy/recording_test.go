package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// refusals are requests that are refused for all the kinds of cause there are.
var refusals = map[string]string{
	"connect":           connectTo("evil.test:443"),
	"get":               get("http://evil.test/"),
	"malformed connect": connectTo("evil.test"),
	"malformed get":     "GET http://evil.test/%zz HTTP/1.1\r\nHost: evil.test\r\n\r\n",
	"malformed host":    "GET http://evil.test/ HTTP/1.1\r\nHost: a b\r\n\r\n",
	"not http":          "\x16\x03\x01",
	"unreachable":       get("http://other.test/"),
	"connect nowhere":   connectTo("other.test:443"),
}

// The record of a refusal is written before the client sees anything.
func TestRefusalIsRecordedFirst(t *testing.T) {
	for name, request := range refusals {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.net.at(otherIP+":80", refuse)
			w.net.at(otherIP+":443", refuse)
			recording, release := make(chan audit.Event), make(chan struct{})
			w.rec.before(func(e audit.Event) {
				recording <- e
				<-release
			})
			c := w.dial(std)
			c.send(request)
			e := <-recording
			c.silent()
			close(release)
			go func() {
				for range recording { //nolint:revive // no other record may block
				}
			}()
			r, _ := c.answer("GET")
			assert.Equal(t, e.ID, r.Header.Get("X-Sluicegate-Event"))
			w.finish()
			close(recording)
			assert.Len(t, w.rec.Events(), 1)
		})
	}
}

// Without a record there is no refusal that names one, and no traffic.
func TestLogBroken(t *testing.T) {
	for name, request := range refusals {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.net.at(otherIP+":80", refuse)
			w.net.at(otherIP+":443", refuse)
			w.rec.FailWith(fmt.Errorf("%w: %w", audit.ErrStorage, errDisk))
			c := w.dial(std)
			c.send(request)
			r, body := c.answer("GET")
			assert.Equal(t, 503, r.StatusCode)
			assert.Contains(t, body, `"reason":"audit_unavailable"`)
			assert.NotContains(t, body, "space left")
			assert.Empty(t, r.Header.Get("X-Sluicegate-Event"))
			w.wantRecords()
		})
	}
}

func TestLogBrokenStopsAllowedTraffic(t *testing.T) {
	for name, request := range map[string]string{
		"connect": connectTo("allowed.test:443"), "get": get("http://allowed.test/"), "websocket": webSocketTo("allowed.test"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.site(allowedIP+":80", func(string) string { return ok("hi") })
			w.origin(allowedIP+":443", echo)
			w.rec.FailWith(errDisk)
			c := w.dial(std)
			c.send(get("http://evil.test/"))
			c.want(503, "")

			// The log is known to be broken: nothing is looked up for the next one.
			c.send(request)
			c.want(503, "")
			w.wantQueries()
			w.wantDials()

			// It works again: that is found out by the record of a refusal.
			w.rec.FailWith(nil)
			c = w.dial(std)
			c.send(request)
			r, body := c.answer("GET")
			assert.Equal(t, 503, r.StatusCode)
			assert.Contains(t, body, `"retryable":true`)
			assert.Equal(t, w.only(audit.EgressDenied).ID, r.Header.Get("X-Sluicegate-Event"))
			c = w.dial(std)
			c.send(get("http://allowed.test/"))
			c.want(200, "hi")
		})
	}
}

// The log breaks while the tunnel is being opened: it is not let through.
func TestLogBreaksAtOpened(t *testing.T) {
	w := newWorld(t)
	o := w.origin(allowedIP+":443", echo)
	w.rec.before(func(e audit.Event) {
		if e.Event == audit.EgressOpened {
			w.rec.FailWith(errDisk)
		}
	})
	c := w.dial(std)
	c.send(connectTo("allowed.test:443") + "early")
	assert.Contains(t, c.rest(), "HTTP/1.1 503 ")
	w.wantRecords()
	w.wait("the origin's end", func() bool { return o.accepted() == 1 })
	o.close()
	assert.Zero(t, o.conns[0].raw.Len())
}

// audit.on_failure: allow keeps allowed traffic going, and refusals refused.
func TestLogBrokenAllowUnrecorded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.AllowUnrecorded = true })
	w.site(allowedIP+":80", func(string) string { return ok("hi") })
	w.origin(allowedIP+":443", echo)
	w.rec.FailWith(errDisk)
	c := w.dial(std)
	c.send(get("http://allowed.test/"))
	c.want(200, "hi")
	c.send(get("http://evil.test/"))
	c.want(503, "")
	c = w.tunnelTo(std, "allowed.test:443")
	c.send("x")
	require.Equal(t, "x", c.read(1))
	c = w.dial(std)
	c.send(connectTo("evil.test:443"))
	assert.Contains(t, c.rest(), "HTTP/1.1 503 ")
	w.wantQueries("allowed.test", "allowed.test")
}

// Observed traffic is recorded before it passes, and stops with the log too.
func TestObserve(t *testing.T) {
	const observe = "version: 1\nproduct: agent\nprofiles:\n  std:\n    listen: {port: 18001}\n    mode: observe\n"
	for name, tt := range map[string]struct{ request, port, status string }{
		"connect": {connectTo("allowed.test:443"), "443", "200"}, "get": {get("http://allowed.test/"), "80", "200"},
		"websocket": {webSocketTo("allowed.test"), "80", "101"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.load(observe)
			w.origin(allowedIP+":80", func(c *originConn) {
				if strings.Contains(c.originHead(), "Upgrade") {
					c.write(switching)
					echo(c)
					return
				}
				c.write(ok("hi"))
			})
			w.origin(allowedIP+":443", echo)
			c := w.dial(std)
			c.send(tt.request)
			assert.Contains(t, c.head(), "HTTP/1.1 "+tt.status)
			require.NoError(t, c.CloseWrite())
			c.rest()
			who := "client|client_closed"
			if name == "get" {
				who = "server|upstream_closed"
			}
			w.wantRecords(
				"egress.observed would_deny observe would=not_listed allowed.test:"+tt.port,
				"egress.closed would_deny observe would=not_listed allowed.test:"+tt.port+" "+who,
			)
		})
		t.Run(name+", log broken", func(t *testing.T) {
			w := newWorld(t)
			w.load(observe)
			w.origin(allowedIP+":443", echo)
			w.rec.FailWith(errDisk)
			c := w.dial(std)
			c.send(tt.request)
			c.want(503, "")
			w.wantRecords()
		})
	}
}
