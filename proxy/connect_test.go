package proxy

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

func TestConnectOpensTunnel(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":443", echo)
	c := w.dial(std)
	c.send("CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\nUser-Agent: x\r\n\r\n")
	// R-P12: no framing, nothing after the empty line.
	require.Equal(t, "HTTP/1.1 200 Connection established\r\n\r\n", c.head())
	c.silent()
	c.send("hello")
	assert.Equal(t, "hello", c.read(5))
	require.NoError(t, c.CloseWrite())
	assert.Empty(t, c.rest())

	w.wantRecords(
		"egress.opened allow rule allowed.test:443 [allowed]",
		"egress.closed allow rule allowed.test:443 [allowed] client|client_closed",
	)
	w.wantQueries("allowed.test")
	w.wantDials(allowedIP + ":443")
	e := w.only(audit.EgressClosed)
	assert.Equal(t, int64(5), *e.BytesIn)
	assert.Equal(t, int64(5), *e.BytesOut)
	assert.Equal(t, 200, e.HTTPStatus)
	assert.Equal(t, "CONNECT", e.Request.Method)
	assert.Equal(t, []audit.Address{{IP: allowedIP, Class: "public"}}, e.Resolved)
	assert.Equal(t, "dev", e.User)
	assert.Equal(t, w.only(audit.EgressOpened).Flow, e.Flow)
	q := w.names.queries[0]
	assert.Equal(t, Query{Profile: std, Rule: "allowed", Flow: e.Flow, Name: "allowed.test"}, q)
}

// Bytes in the segment of the request are the tunnel's first.
func TestConnectEarlyBytes(t *testing.T) {
	for name, early := range map[string]string{
		"few": "\x16\x03\x01hello", "many": strings.Repeat("0123456789", 2000),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.origin(allowedIP+":443", echo)
			c := w.dial(std)
			c.send(connectTo("allowed.test:443") + early)
			require.Equal(t, established, c.head())
			require.NoError(t, c.CloseWrite())
			assert.Equal(t, early, c.rest())
			w.finish()
			assert.Equal(t, int64(len(early)), *w.only(audit.EgressClosed).BytesOut)
		})
	}
}

// The record of an opened tunnel stands before the first byte goes either way.
func TestConnectOpenedIsRecordedFirst(t *testing.T) {
	w := newWorld(t)
	accepted := make(chan *originConn, 1)
	w.origin(allowedIP+":443", func(c *originConn) {
		accepted <- c
		echo(c)
	})
	recording, release := make(chan audit.Event), make(chan struct{})
	w.rec.before(func(e audit.Event) {
		if e.Event == audit.EgressOpened {
			recording <- e
			<-release
		}
	})
	c := w.dial(std)
	c.send(connectTo("allowed.test:443") + "early")
	<-recording
	o := <-accepted
	c.silent()
	assert.Zero(t, o.raw.Len(), "the origin got bytes before the record")
	close(release)
	require.Equal(t, established, c.head())
	assert.Equal(t, "early", c.read(5))
}

// R-P29: a client that shuts its side gets the whole answer, however the tunnel
// was asked for.
func TestR_P29_ClientHalfClose(t *testing.T) {
	const size = 1 << 20
	for name, open := range map[string]func(w *world) *client{
		"connect": func(w *world) *client { return w.tunnelTo(std, "allowed.test:443") },
		"socks":   func(w *world) *client { return w.socksTunnelTo(std, "allowed.test:443") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.origin(allowedIP+":443", func(c *originConn) {
				req, err := io.ReadAll(c.br)
				assert.NoError(t, err)
				assert.Equal(t, "req", string(req))
				c.write(strings.Repeat("x", size))
			})
			c := open(w)
			c.send("req")
			require.NoError(t, c.CloseWrite())
			assert.Len(t, c.rest(), size)
			w.finish()
			e := w.only(audit.EgressClosed)
			assert.Equal(t, int64(size), *e.BytesIn)
			assert.Equal(t, int64(3), *e.BytesOut)
			assert.Equal(t, audit.End{Who: "client", Why: "client_closed"}, *e.End)
		})
	}
}

// The other way round: the origin has said all, the client goes on.
func TestConnectOriginHalfClose(t *testing.T) {
	w := newWorld(t)
	got := make(chan string, 1)
	w.origin(allowedIP+":443", func(c *originConn) {
		c.write("bye")
		_ = c.CloseWrite()
		b, err := io.ReadAll(c.br)
		assert.NoError(t, err)
		got <- string(b)
	})
	c := w.tunnelTo(std, "allowed.test:443")
	assert.Equal(t, "bye", c.rest())
	c.send("still here")
	require.NoError(t, c.CloseWrite())
	assert.Equal(t, "still here", <-got)
	w.wantRecords(
		"egress.opened allow rule allowed.test:443 [allowed]",
		"egress.closed allow rule allowed.test:443 [allowed] server|upstream_closed",
	)
}

// A side that breaks off ends the tunnel, and the record says which.
func TestConnectReset(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		w := newWorld(t)
		ended := make(chan struct{})
		w.origin(allowedIP+":443", func(c *originConn) {
			_, _ = io.Copy(io.Discard, c.br)
			close(ended)
		})
		c := w.tunnelTo(std, "allowed.test:443")
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
		<-ended
		w.finish()
		assert.Equal(t, audit.End{Who: "client", Why: "client_closed"}, *w.only(audit.EgressClosed).End)
	})
	t.Run("origin", func(t *testing.T) {
		w := newWorld(t)
		w.origin(allowedIP+":443", func(c *originConn) {
			_, _ = c.br.ReadByte()
			_ = c.SetLinger(0)
		})
		c := w.tunnelTo(std, "allowed.test:443")
		c.send("x")
		c.ended()
		w.finish()
		assert.Equal(t, audit.End{Who: "server", Why: "upstream_closed"}, *w.only(audit.EgressClosed).End)
	})
}

// R-P10, R-P11: the Host field is no input, and old clients send none.
func TestConnectIgnoresHost(t *testing.T) {
	for name, head := range map[string]string{
		"the gate's own":  "CONNECT allowed.test:443 HTTP/1.1\r\nHost: 127.0.0.1:18080\r\n\r\n",
		"a denied one":    "CONNECT allowed.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
		"none in 1.1":     "CONNECT allowed.test:443 HTTP/1.1\r\n\r\n",
		"none in 1.0":     "CONNECT allowed.test:443 HTTP/1.0\r\n\r\n",
		"case and dot":    "CONNECT ALLOWED.Test.:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"empty body":      "CONNECT allowed.test:443 HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
		"after an empty":  "\r\nCONNECT allowed.test:443 HTTP/1.1\r\n\r\n",
		"with a password": "CONNECT allowed.test:443 HTTP/1.1\r\nProxy-Authorization: Basic dTpw\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.origin(allowedIP+":443", echo)
			c := w.dial(std)
			c.send(head)
			require.Equal(t, established, c.head())
			c.send("x")
			assert.Equal(t, "x", c.read(1))
			require.NoError(t, c.CloseWrite())
			c.rest()
			w.wantRecords(
				"egress.opened allow rule allowed.test:443 [allowed]",
				"egress.closed allow rule allowed.test:443 [allowed] client|client_closed",
			)
		})
	}
}

// A head that trickles in is the same as one in a single segment.
func TestConnectByteByByte(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":443", echo)
	c := w.dial(std)
	require.NoError(t, c.SetNoDelay(true))
	for _, b := range connectTo("allowed.test:443") {
		c.send(string(b))
	}
	require.Equal(t, established, c.head())
}

// What allowed tunnels leave in the log is a setting; refusals are not.
func TestConnectAllowedRecords(t *testing.T) {
	for allowed, want := range map[Allowed][]string{
		AllowedAll: {
			"egress.opened allow rule allowed.test:443 [allowed]",
			"egress.closed allow rule allowed.test:443 [allowed] client|client_closed",
			"egress.denied deny not_listed evil.test:443",
		},
		AllowedClosed: {
			"egress.closed allow rule allowed.test:443 [allowed] client|client_closed",
			"egress.denied deny not_listed evil.test:443",
		},
		AllowedOff: {"egress.denied deny not_listed evil.test:443"},
	} {
		t.Run(string(allowed), func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Allowed = allowed })
			w.origin(allowedIP+":443", echo)
			c := w.tunnelTo(std, "allowed.test:443")
			require.NoError(t, c.CloseWrite())
			c.rest()
			w.wait("the tunnel's end", func() bool { return w.Stats().Connections == 0 })
			c = w.dial(std)
			c.send(connectTo("evil.test:443"))
			assert.Contains(t, c.rest(), "HTTP/1.1 403 ")
			w.wantRecords(want...)
		})
	}
}
