package proxy

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/policy"
)

// Whatever panics ends one request, which is answered and recorded; the gate
// goes on.
func TestPanic(t *testing.T) {
	requests := map[string]string{
		"connect": connectTo("allowed.test:443"), "get": get("http://allowed.test/"), "websocket": webSocketTo("allowed.test"),
	}
	for name, arm := range map[string]func(w *world, boom func()){
		"resolver": func(w *world, boom func()) {
			w.names.script("allowed.test", func(context.Context, Query) (Answer, error) {
				boom()
				return Answer{Addrs: []netip.Addr{netip.MustParseAddr(allowedIP)}}, nil
			})
		},
		"dialer": func(w *world, boom func()) {
			for _, port := range []string{":80", ":443"} {
				w.net.at(allowedIP+port, func(ctx context.Context) (*net.TCPConn, error) {
					boom()
					return refuse(ctx)
				})
			}
		},
		"one of two dialers": func(w *world, boom func()) {
			w.names.set("allowed.test", allowedIP, otherIP)
			for _, port := range []string{":80", ":443"} {
				w.net.at(allowedIP+port, func(ctx context.Context) (*net.TCPConn, error) {
					boom()
					return refuse(ctx)
				})
				w.net.at(otherIP+port, blackhole)
			}
		},
		"local addresses": func(w *world, boom func()) {
			w.boom.Store(&boom)
		},
		"recorder": func(w *world, boom func()) {
			w.names.fail("allowed.test", errDisk)
			w.rec.before(func(audit.Event) { boom() })
		},
	} {
		for kind, request := range requests {
			t.Run(name+" "+kind, func(t *testing.T) {
				w := newWorld(t)
				var once sync.Once
				arm(w, func() {
					first := false
					once.Do(func() { first = true })
					if first {
						panic("boom")
					}
				})
				c := w.dial(std)
				c.send(request)
				r, body := c.answer("GET")
				assert.Equal(t, 500, r.StatusCode)
				assert.Contains(t, body, `"reason":"internal"`)
				assert.NotContains(t, body, "boom")
				port := map[string]string{"connect": "443", "get": "80", "websocket": "80"}[kind]
				e := w.rec.WaitFor(t, func(e audit.Event) bool { return e.Reason == "internal" })
				assert.Equal(t, e.ID, r.Header.Get("X-Sluicegate-Event"))
				assert.Equal(t, "allowed.test:"+port, net.JoinHostPort(e.Dest, port))

				c = w.dial(std)
				c.send(get("http://evil.test/"))
				c.want(403, "")
				w.finish()
				assert.Len(t, w.rec.Events(), 2, "%v", w.rec.briefs())
			})
		}
	}
}

// The same for a CONNECT that came after other requests.
func TestPanicAfterGet(t *testing.T) {
	w := newWorld(t)
	w.numbered()
	w.names.script("other.test", func(context.Context, Query) (Answer, error) { return Answer{}, errDisk })
	boom := false
	w.rec.before(func(e audit.Event) {
		if e.Dest == "other.test" && !boom {
			boom = true
			panic("boom")
		}
	})
	c := w.dial(std)
	c.send(get("http://allowed.test/") + connectTo("other.test:443"))
	c.want(200, "/")
	assert.True(t, c.want(500, "").Close)
	assert.Empty(t, c.rest())
	w.wantRecords(closed80, "egress.closed error internal other.test:443 [other] gate|internal")
}

// What panics again and again still ends only its own request.
func TestPanicForEver(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"recorder":   func(c *Config) { c.Recorder = panickingRecorder{} },
		"snapshot":   func(c *Config) { c.Snapshot = func() *policy.Snapshot { panic("boom") } },
		"identifier": func(c *Config) { c.Identifier = panickingIdentifier{} },
	} {
		for kind, request := range map[string]string{
			"connect": connectTo("allowed.test:443"), "get": get("http://evil.test/"), "malformed": "GET / HTTP/1.1\r\n\r\n",
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				w := newWorld(t, change)
				w.names.fail("allowed.test", errDisk)
				for range 2 {
					c := w.dial(std)
					c.send(request)
					assert.Equal(t, 500, c.status())
				}
				w.finish()
			})
		}
	}
}

// A connection over the limit is refused on a goroutine of its own.
func TestPanicOverTheLimit(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Limits.Connections = 1
		c.Recorder = panickingRecorder{}
	})
	w.dial(std).send("G")
	w.wait("the place to be taken", func() bool { return w.Stats().Connections == 1 })
	w.dial(std).ended()
}

type panickingRecorder struct{}

func (panickingRecorder) Record(context.Context, audit.Event) error { panic("boom") }
func (panickingRecorder) Healthy() bool                             { return true }

type panickingIdentifier struct{}

func (panickingIdentifier) Identify(_, _ netip.AddrPort) Peer { panic("boom") }

// A client whose tunnel is open gets no answer, only the end.
func TestPanicWithTunnelOpen(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":443", echo)
	w.rec.before(func(e audit.Event) {
		if e.Event == audit.EgressClosed && e.Decision == audit.DecisionAllow {
			panic("boom")
		}
	})
	c := w.tunnelTo(std, "allowed.test:443")
	require.NoError(t, c.CloseWrite())
	assert.Empty(t, c.rest())
	w.wantRecords(opened443, "egress.closed error internal allowed.test:443 [allowed] gate|internal")
}
