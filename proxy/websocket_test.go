package proxy

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// webSocketTo is a request to become a WebSocket (R-P16).
func webSocketTo(host string) string {
	return "GET http://" + host + "/ws HTTP/1.1\r\nHost: " + host + "\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nProxy-Authorization: Basic dTpw\r\n\r\n"
}

const (
	switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nSec-Websocket-Accept: x\r\nUpgrade: websocket\r\n\r\n"
	opened80  = "egress.opened allow rule allowed.test:80 [allowed]"
	closedWS  = "egress.closed allow rule allowed.test:80 [allowed] client|client_closed"
)

// Frames flow only after the origin's 101; those glued to it come at once, and
// the client's early ones are not lost.
func TestWebSocket(t *testing.T) {
	w := newWorld(t)
	asked, answer := make(chan string, 1), make(chan struct{})
	w.origin(allowedIP+":80", func(c *originConn) {
		asked <- c.originHead()
		<-answer
		assert.Zero(t, c.br.Buffered(), "the client's frames came before the 101")
		c.write(switching + "glued")
		echo(c)
	})
	c := w.dial(std)
	c.send(webSocketTo("allowed.test") + "early")
	assert.Equal(t, "GET /ws HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nSec-Websocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"+
		"Sec-Websocket-Version: 13\r\nUpgrade: websocket\r\n\r\n", <-asked)
	c.silent()
	close(answer)
	assert.Equal(t, switching, c.head())
	assert.Equal(t, "glued", c.read(5))
	assert.Equal(t, "early", c.read(5))
	c.send("later")
	assert.Equal(t, "later", c.read(5))
	require.NoError(t, c.CloseWrite())
	assert.Empty(t, c.rest())
	w.wantRecords(opened80, closedWS)
	w.wantQueries("allowed.test")
	e := w.only(audit.EgressClosed)
	assert.Equal(t, int64(15), *e.BytesIn)
	assert.Equal(t, int64(10), *e.BytesOut)
	assert.Equal(t, 101, e.HTTPStatus)
}

// It works as a later request on a kept connection as well.
func TestWebSocketAfterGet(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":80", func(c *originConn) {
		if strings.HasPrefix(c.originHead(), "GET /ws") {
			c.write(switching)
			echo(c)
			return
		}
		c.write(ok("hi"))
	})
	c := w.dial(std)
	c.send(get("http://allowed.test/") + webSocketTo("allowed.test") + "early")
	c.want(200, "hi")
	assert.Equal(t, switching, c.head())
	assert.Equal(t, "early", c.read(5))
}

// Any other answer is an ordinary response: the connection is kept, and what the
// client sent after its request is judged as the next one.
func TestWebSocketRefusedByOrigin(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		status int
	}{
		"200":             {ok("hi"), 200},
		"426":             {"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nhi", 426},
		"interim, then":   {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + ok("hi"), 200},
		"chunked":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200},
		"a fake upgrade":  {"HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nhi", 200},
		"until the close": {"HTTP/1.1 200 OK\r\n\r\nhi", 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.origin(allowedIP+":80", func(c *originConn) {
				c.originHead()
				c.write(tt.answer)
			})
			c := w.dial(std)
			c.send(webSocketTo("allowed.test") + get("http://evil.test/s"))
			r := c.want(tt.status, "hi")
			assert.Empty(t, r.Header.Get("Upgrade"))
			c.want(403, "")
			w.wantRecords(closed80, denied80)
		})
	}
}

// A 101 that is none is an upstream fault.
func TestWebSocketBadAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"another protocol": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"no protocol":      "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"control byte":     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nX: \x00\r\n\r\n",
		"status below 100": "HTTP/1.1 042 X\r\n\r\n",
		"nothing":          "",
		"no HTTP":          "SSH-2.0-x\r\n",
		"only interim":     strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100),
		"an endless head":  "HTTP/1.1 101 Switching Protocols\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 300),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.origin(allowedIP+":80", func(c *originConn) {
				c.originHead()
				c.write(answer)
				_ = c.CloseWrite()
				_, _ = io.Copy(io.Discard, c.br)
			})
			c := w.dial(std)
			c.send(webSocketTo("allowed.test"))
			assert.False(t, c.want(502, "").Close)
			w.wantRecords("egress.closed error upstream_reset allowed.test:80 [allowed] server|upstream_reset")
		})
	}
}

func TestWebSocketDenied(t *testing.T) {
	w := newWorld(t)
	c := w.dial(std)
	c.send(webSocketTo("evil.test"))
	c.want(403, "")
	w.wantRefused(denied80)
}

// Where the body of an upgrade ends two readers could disagree, so it is no
// upgrade.
func TestWebSocketWithBody(t *testing.T) {
	w := newWorld(t)
	o := w.site(allowedIP+":80", func(string) string { return ok("hi") })
	c := w.dial(std)
	c.send(strings.Replace(webSocketTo("allowed.test"), "\r\n\r\n", "\r\nContent-Length: 4\r\n\r\nbody", 1))
	c.want(200, "hi")
	assert.NotContains(t, o.requests()[0], "Upgrade")
	assert.True(t, strings.HasSuffix(o.requests()[0], "\r\n\r\nbody"))
}

// Without a record of its opening it does not open.
func TestWebSocketLogBreaks(t *testing.T) {
	w := newWorld(t)
	ended := make(chan string, 1)
	w.origin(allowedIP+":80", func(c *originConn) {
		c.originHead()
		c.write(switching)
		b, _ := io.ReadAll(c.br)
		ended <- string(b)
	})
	w.rec.before(func(e audit.Event) {
		if e.Event == audit.EgressOpened {
			w.rec.FailWith(errDisk)
		}
	})
	c := w.dial(std)
	c.send(webSocketTo("allowed.test") + "early")
	assert.Contains(t, c.head(), "HTTP/1.1 503 ")
	assert.Empty(t, <-ended)
}

// The client leaves while the origin makes up its mind.
func TestWebSocketClientGone(t *testing.T) {
	w := newWorld(t)
	asked, ended := make(chan struct{}), make(chan struct{})
	w.origin(allowedIP+":80", func(c *originConn) {
		c.originHead()
		close(asked)
		_, _ = io.Copy(io.Discard, c.br)
		close(ended)
	})
	c := w.dial(std)
	c.send(webSocketTo("allowed.test"))
	<-asked
	require.NoError(t, c.Close())
	<-ended
	w.wantRecords("egress.closed error client_closed allowed.test:80 [allowed] client|client_closed")
}
