package proxy

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/policy"
)

// An allowed name that resolves to what is not allowed is refused after the
// look-up, as a whole, and nothing is dialled.
func TestGuardJudgesAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		addrs  []string
		reason string
	}{
		"private":              {[]string{"10.0.0.1"}, "dest_private"},
		"loopback":             {[]string{"127.0.0.1"}, "dest_private"},
		"metadata":             {[]string{"169.254.169.254"}, "dest_metadata"},
		"own address":          {[]string{"203.0.114.7"}, "dest_self"},
		"mixed, private last":  {[]string{allowedIP, "192.168.0.1"}, "dest_private"},
		"mixed, private first": {[]string{"192.168.0.1", allowedIP}, "dest_private"},
		"mixed, metadata":      {[]string{allowedIP, otherIP, "169.254.169.254"}, "dest_metadata"},
		"mapped":               {[]string{"::ffff:10.0.0.1"}, "dest_private"},
		"translated":           {[]string{"64:ff9b::a00:1"}, "dest_private"},
		"unique local":         {[]string{"fd00::1"}, "dest_private"},
		"unspecified":          {[]string{"0.0.0.0"}, "dest_private"},
		"zone":                 {[]string{"fe80::1%lo"}, "dest_private"},
	} {
		for kind, request := range map[string]string{
			"connect": connectTo("allowed.test:443"), "get": get("http://allowed.test/"), "websocket": webSocketTo("allowed.test"),
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				w := newWorld(t)
				w.local.Store(policy.NewLocalSet([]netip.Addr{netip.MustParseAddr("203.0.114.7")}, nil))
				w.names.set("allowed.test", tt.addrs...)
				c := w.dial(std)
				c.send(request)
				r := c.want(403, "")
				assert.Equal(t, `sluicegate; error=destination_ip_prohibited; details="`+tt.reason+`"`, r.Header.Get("Proxy-Status"))
				w.finish()
				e := w.only(audit.EgressDenied)
				assert.Equal(t, tt.reason, e.Reason)
				assert.Equal(t, "dial", e.Stage)
				assert.NotEmpty(t, e.MatchedRange)
				assert.Len(t, e.Resolved, len(tt.addrs))
				assert.Len(t, w.rec.Events(), 1)
				w.wantQueries("allowed.test")
				w.wantDials()
			})
		}
	}
}

// A resolver that answers something else the next time is asked once only.
func TestGuardResolvesOnce(t *testing.T) {
	for kind, request := range map[string]string{
		"connect": connectTo("allowed.test:443"), "get": get("http://allowed.test/"), "websocket": webSocketTo("allowed.test"),
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			var asked atomic.Int32
			w.names.script("allowed.test", func(context.Context, Query) (Answer, error) {
				if asked.Add(1) == 1 {
					return Answer{Addrs: []netip.Addr{netip.MustParseAddr(allowedIP)}}, nil
				}
				return Answer{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, nil
			})
			w.origin(allowedIP+":443", echo)
			w.site(allowedIP+":80", func(string) string { return ok("hi") })
			c := w.dial(std)
			c.send(request)
			assert.Contains(t, c.head(), "HTTP/1.1 200 ")
			assert.Equal(t, int32(1), asked.Load())
			assert.Len(t, w.net.dialled(), 1)
		})
	}
}

// The socket's address is judged once more right before it connects, and must be
// the one that was judged before.
func TestGuardAtConnect(t *testing.T) {
	for name, tt := range map[string]struct {
		network, address string
		between          func(*world)
		record           string
		status           int
	}{
		"the same":         {"tcp4", allowedIP + ":443", nil, "", 200},
		"as mapped":        {"tcp6", "[::ffff:" + allowedIP + "]:443", nil, "", 200},
		"another address":  {"tcp4", "127.0.0.1:443", nil, "egress.closed error internal allowed.test:443 gate|internal", 500},
		"another port":     {"tcp4", allowedIP + ":80", nil, "egress.closed error internal allowed.test:443 gate|internal", 500},
		"nothing readable": {"tcp4", "allowed.test:443", nil, "egress.closed error internal allowed.test:443 gate|internal", 500},
		"own since then": {"tcp4", allowedIP + ":443", func(w *world) {
			w.local.Store(policy.NewLocalSet([]netip.Addr{netip.MustParseAddr(allowedIP)}, nil))
		}, "egress.denied deny dest_self allowed.test:443", 403},
	} {
		t.Run(name, func(t *testing.T) {
			var w *world
			connected := false
			w = newWorld(t, func(c *Config) {
				c.testOnlyDial = func(ctx context.Context, d *net.Dialer, addr netip.AddrPort) (*net.TCPConn, error) {
					if tt.between != nil {
						tt.between(w)
					}
					if err := d.ControlContext(ctx, tt.network, tt.address, nil); err != nil {
						return nil, err
					}
					connected = true
					return w.net.dial(ctx, d, addr)
				}
			})
			w.origin(allowedIP+":443", echo)
			c := w.dial(std)
			c.send(connectTo("allowed.test:443"))
			assert.Equal(t, tt.status, c.status())
			assert.Equal(t, tt.status == 200, connected)
			if tt.record != "" {
				w.wantRecords(tt.record)
			}
		})
	}
}

// An address that is refused at connect refuses the answer as a whole.
func TestGuardAtConnectIsFinal(t *testing.T) {
	w := newWorld(t)
	w.names.script("allowed.test", func(context.Context, Query) (Answer, error) {
		return Answer{Addrs: []netip.Addr{netip.MustParseAddr(otherIP), netip.MustParseAddr(allowedIP)}}, nil
	})
	own := policy.NewLocalSet([]netip.Addr{netip.MustParseAddr(otherIP)}, nil)
	asked := 0
	fn := func() {
		// The verdicts on the name and on the addresses are over.
		if asked++; asked > 2 {
			w.local.Store(own)
		}
	}
	w.boom.Store(&fn)
	w.origin(allowedIP+":443", echo)
	c := w.dial(std)
	c.send(connectTo("allowed.test:443"))
	assert.Contains(t, c.rest(), "HTTP/1.1 403 ")
	w.wantRecords("egress.denied deny dest_self allowed.test:443")
	w.wantDials()
}

// The real dialer calls the control function with the socket's own address.
func TestGuardAtConnectOfTheRealDialer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	w := newWorld(t, func(c *Config) { c.testOnlyDial = nil })
	port := addrPort(ln.Addr()).Port()
	f := w.newFlow(w.profiles[std], netip.AddrPort{}, Peer{Entitled: true})
	defer f.cancel(nil)
	f.dest, err = policy.ParseHostPort("127.0.0.1", port)
	require.NoError(t, err)
	_, err = w.dialOne(t.Context(), f, netip.MustParseAddr("127.0.0.1"))
	var refused *guardError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, policy.ReasonDestPrivate, refused.decision.Reason)
}

// R-P31: a dead family costs nothing that a client would notice, and the record
// names what was tried and what was reached.
func TestDeadIPv6(t *testing.T) {
	for name, dead := range map[string]func(context.Context) (*net.TCPConn, error){"refused": refuse, "silent": blackhole} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.names.set("allowed.test", "2606:2800::1", "2606:2800::2", allowedIP)
			w.net.at("[2606:2800::1]:443", dead)
			w.net.at("[2606:2800::2]:443", dead)
			w.origin(allowedIP+":443", echo)
			c := w.tunnelTo(std, "allowed.test:443")
			c.send("x")
			assert.Equal(t, "x", c.read(1))
			require.NoError(t, c.CloseWrite())
			c.rest()
			w.wantRecords(opened443, closed443)
			assert.Len(t, w.only(audit.EgressClosed).Resolved, 3)
			assert.Equal(t, []string{"[2606:2800::1]:443", allowedIP + ":443"}, w.net.dialled())
		})
	}
}

// Connections that lose the race are closed.
func TestLosersOfTheRaceAreClosed(t *testing.T) {
	w := newWorld(t)
	w.names.set("allowed.test", otherIP, allowedIP)
	lost := make(chan struct{})
	slow := w.origin(otherIP+":443", func(c *originConn) {
		_, _ = c.br.ReadByte()
		close(lost)
	})
	begun := make(chan struct{})
	w.net.at(otherIP+":443", func(ctx context.Context) (*net.TCPConn, error) {
		// It connects whatever becomes of the context, after the other one did.
		<-begun
		c, err := net.Dial("tcp", slow.ln.Addr().String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	})
	w.origin(allowedIP+":443", echo)
	c := w.tunnelTo(std, "allowed.test:443")
	close(begun)
	<-lost
	c.send("x")
	assert.Equal(t, "x", c.read(1))
}

// A grant of private addresses for one name never serves another.
func TestGrantIsForItsName(t *testing.T) {
	w := newWorld(t)
	w.names.set("lan.test", "10.1.2.3")
	w.names.set("allowed.test", "10.1.2.3")
	w.site("10.1.2.3:80", func(string) string { return ok("intranet") })
	c := w.dial(std)
	c.send(get("http://lan.test/"))
	c.want(200, "intranet")
	c.send(get("http://allowed.test/"))
	c.want(403, "")
	c.send(get("http://10.1.2.3/"))
	c.want(403, "")
	w.wantRecords(
		"egress.closed allow rule lan.test:80 [lan] server|upstream_closed",
		"egress.denied deny dest_private allowed.test:80",
		"egress.denied deny dest_private 10.1.2.3:80",
	)
	w.wantDials("10.1.2.3:80")
	e := w.rec.Events()[0]
	assert.NotEmpty(t, e.MatchedRange, "that a grant was used is recorded")
}
