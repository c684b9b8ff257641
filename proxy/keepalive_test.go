package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// numbered is a site whose answers are the paths that were asked for.
func (w *world) numbered() *origin {
	return w.site(allowedIP+":80", func(raw string) string {
		return ok(strings.Fields(raw)[1])
	})
}

const (
	denied80  = "egress.denied deny not_listed evil.test:80"
	closed80  = "egress.closed allow rule allowed.test:80 [allowed] server|upstream_closed"
	opened443 = "egress.opened allow rule allowed.test:443 [allowed]"
	closed443 = "egress.closed allow rule allowed.test:443 [allowed] client|client_closed"
)

// R-P01: a connection is kept over requests and over a refusal among them, and no
// answer says otherwise.
func TestKeepAlive(t *testing.T) {
	w := newWorld(t)
	o := w.numbered()
	c := w.dial(std)
	for i := 1; i <= 5; i++ {
		if i == 3 {
			c.send(get("http://evil.test/3"))
			assert.False(t, c.want(403, "").Close)
			continue
		}
		c.send(get(fmt.Sprintf("http://allowed.test/%d", i)))
		assert.False(t, c.want(200, fmt.Sprintf("/%d", i)).Close)
	}
	w.wantRecords(closed80, closed80, denied80, closed80, closed80)
	w.wantQueries("allowed.test") // one upstream connection, kept as well
	assert.Equal(t, 1, o.accepted())
}

// R-P18: pipelined requests are answered in order, each by its own verdict.
func TestPipelined(t *testing.T) {
	for name, tt := range map[string]struct {
		send    []string
		want    []int
		records []string
	}{
		"two":               {[]string{get("http://allowed.test/1"), get("http://allowed.test/2")}, []int{200, 200}, []string{closed80, closed80}},
		"second denied":     {[]string{get("http://allowed.test/1"), get("http://evil.test/2")}, []int{200, 403}, []string{closed80, denied80}},
		"first denied":      {[]string{get("http://evil.test/1"), get("http://allowed.test/2")}, []int{403, 200}, []string{denied80, closed80}},
		"both denied":       {[]string{get("http://evil.test/1"), get("http://evil.test/2")}, []int{403, 403}, []string{denied80, denied80}},
		"empty lines":       {[]string{get("http://allowed.test/1"), "\r\n" + get("http://allowed.test/2")}, []int{200, 200}, []string{closed80, closed80}},
		"post, then denied": {[]string{post("http://allowed.test/1", "body"), get("http://evil.test/2")}, []int{200, 403}, []string{closed80, denied80}},
		"chunked, then denied": {
			[]string{postChunked("http://allowed.test/1", "4\r\nbody\r\n0\r\n\r\n"), get("http://evil.test/2")},
			[]int{200, 403},
			[]string{closed80, denied80},
		},
		"denied post, then a get": {[]string{post("http://evil.test/1", get("http://allowed.test/x")), get("http://allowed.test/2")}, []int{403, 200}, []string{denied80, closed80}},
		"malformed second": {
			[]string{get("http://allowed.test/1"), "GET http://allowed.test/ HTTP/1.1\nHost: allowed.test\n\n"},
			[]int{200, 400},
			[]string{closed80, "egress.denied error bad_header allowed.test:80"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := strings.Join(tt.send, "")
			for cut, parts := range map[string][]string{
				"one segment":  {whole},
				"a few":        {whole[:40], whole[40:90], whole[90:]},
				"byte by byte": strings.Split(whole, ""),
			} {
				t.Run(cut, func(t *testing.T) {
					w := newWorld(t)
					w.numbered()
					c := w.dial(std)
					require.NoError(t, c.SetNoDelay(true))
					for _, p := range parts {
						c.send(p)
					}
					for i, status := range tt.want {
						r := c.want(status, "")
						assert.Equal(t, i == 1 && status == 400, r.Close)
					}
					w.wantRecords(tt.records...)
				})
			}
		})
	}
}

// post is a POST with a body of known length.
func post(url, body string) string {
	return strings.Replace(strings.Replace(get(url), "GET ", "POST ", 1), "\r\n\r\n",
		fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n%s", len(body), body), 1)
}

// postChunked is a POST with that chunked body.
func postChunked(url, body string) string {
	return strings.Replace(strings.Replace(get(url), "GET ", "POST ", 1), "\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n"+body, 1)
}

// chunk is one chunk of a body.
func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// R-P19: the body of a refused request is never taken for a request, whether it
// comes at once, later, or is too large to be passed over.
func TestRefusedBodyIsNoRequest(t *testing.T) {
	hidden := get("http://allowed.test/hidden")
	t.Run("at once", func(t *testing.T) {
		w := newWorld(t)
		o := w.numbered()
		c := w.dial(std)
		c.send(post("http://evil.test/", hidden) + get("http://allowed.test/next"))
		assert.False(t, c.want(403, "").Close)
		c.want(200, "/next")
		w.wantRecords(denied80, closed80)
		assert.Len(t, o.requests(), 1)
	})
	t.Run("chunked, at once", func(t *testing.T) {
		w := newWorld(t)
		w.numbered()
		c := w.dial(std)
		c.send(postChunked("http://evil.test/", chunk(hidden)+"0\r\n\r\n") + get("http://allowed.test/next"))
		assert.False(t, c.want(403, "").Close)
		c.want(200, "/next")
		w.wantRecords(denied80, closed80)
	})
	t.Run("later", func(t *testing.T) {
		w := newWorld(t)
		w.numbered()
		c := w.dial(std)
		c.send(fmt.Sprintf("POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nContent-Length: %d\r\n\r\n", len(hidden)))
		// The refusal does not wait for the body, which is short.
		assert.False(t, c.want(403, "").Close)
		c.send(hidden + get("http://allowed.test/next"))
		c.want(200, "/next")
		w.wantRecords(denied80, closed80)
	})
	for name, framing := range map[string]string{"too large": "Content-Length: 1048576", "of unknown length": "Transfer-Encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.numbered()
			c := w.dial(std)
			c.send("POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n" + framing + "\r\n\r\n")
			assert.True(t, c.want(403, "").Close)
			c.send(chunk(hidden))
			assert.Empty(t, c.rest())
			w.wantRefused(denied80)
		})
	}
	t.Run("refused for its framing", func(t *testing.T) {
		w := newWorld(t)
		w.numbered()
		c := w.dial(std)
		c.send(postChunked("http://allowed.test/", "3\nabc\r\n0\r\n\r\n"+hidden))
		assert.True(t, c.want(400, "").Close)
		assert.Empty(t, c.ended())
		w.wantRefused("egress.denied error bad_framing allowed.test:80 [allowed]")
	})
}

// A CONNECT after other requests on the same connection gets its tunnel, in
// order, with its early bytes.
func TestConnectAfterGet(t *testing.T) {
	for name, tt := range map[string]struct{ first, second string }{
		"in one segment":  {get("http://allowed.test/1") + connectTo("allowed.test:443") + "early", ""},
		"in two segments": {get("http://allowed.test/1"), connectTo("allowed.test:443") + "early"},
		"cut in the head": {get("http://allowed.test/1") + connectTo("allowed.test:443")[:20], connectTo("allowed.test:443")[20:] + "early"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.numbered()
			w.origin(allowedIP+":443", echo)
			c := w.dial(std)
			c.send(tt.first)
			assert.False(t, c.want(200, "/1").Close)
			if tt.second != "" {
				c.send(tt.second)
			}
			require.Equal(t, established, c.head())
			assert.Equal(t, "early", c.read(5))
			c.send("later")
			assert.Equal(t, "later", c.read(5))
			require.NoError(t, c.CloseWrite())
			assert.Empty(t, c.rest())
			w.wantRecords(closed80, opened443, closed443)
		})
	}
}

// The answer before a pipelined CONNECT is not disturbed, however slow it is.
func TestConnectWaitsForItsTurn(t *testing.T) {
	w := newWorld(t)
	asked, finish := make(chan struct{}), make(chan struct{})
	w.origin(allowedIP+":80", func(c *originConn) {
		c.request()
		c.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
		close(asked)
		<-finish
		c.write("cd")
	})
	w.origin(allowedIP+":443", echo)
	c := w.dial(std)
	c.send(get("http://allowed.test/") + connectTo("allowed.test:443") + "early")
	<-asked
	assert.Contains(t, c.head(), "HTTP/1.1 200 OK\r\n")
	assert.Equal(t, "ab", c.read(2))
	w.wantQueries("allowed.test")
	close(finish)
	assert.Equal(t, "cd", c.read(2))
	require.Equal(t, established, c.head())
	assert.Equal(t, "early", c.read(5))
}

// A CONNECT that is refused after other requests ends the connection, and what
// follows it is no request.
func TestDeniedConnectAfterGet(t *testing.T) {
	w := newWorld(t)
	o := w.numbered()
	c := w.dial(std)
	c.send(get("http://allowed.test/1") + connectTo("evil.test:443") + get("http://allowed.test/2"))
	c.want(200, "/1")
	assert.True(t, c.want(403, "").Close)
	assert.Empty(t, c.rest())
	w.wantRecords(closed80, "egress.denied deny not_listed evil.test:443")
	assert.Len(t, o.requests(), 1)
}

// Part of a second request is answered and recorded, not dropped.
func TestSecondRequestBreaksOff(t *testing.T) {
	w := newWorld(t)
	w.numbered()
	c := w.dial(std)
	c.send(get("http://allowed.test/1"))
	c.want(200, "/1")
	c.send("GET http://evil.test/se")
	require.NoError(t, c.CloseWrite())
	assert.True(t, c.want(400, "").Close)
	assert.Empty(t, c.rest())
	w.wantRecords(closed80, "egress.denied error malformed evil.test:80")
	e := w.rec.Events()[1]
	assert.Equal(t, "http://evil.test/", e.Request.TargetRaw)
	assert.Equal(t, "listener", e.Stage)
}

// HTTP/1.0 is served, and ends unless both sides want to go on.
func TestHTTP10(t *testing.T) {
	w := newWorld(t)
	w.numbered()
	c := w.dial(std)
	c.send("GET http://allowed.test/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	r, _ := c.answer(http.MethodGet)
	assert.Equal(t, "keep-alive", r.Header.Get("Connection"))
	c.send("GET http://evil.test/2 HTTP/1.0\r\n\r\n")
	assert.True(t, c.want(403, "").Close)
	assert.Empty(t, c.rest())
	w.wantRecords(closed80, denied80)
}
