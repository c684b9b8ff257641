package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// R-P05: each piece of a response reaches the client before the next is written,
// whatever its type and framing; so does the head before the first piece.
func TestResponseIsStreamed(t *testing.T) {
	for name, tt := range map[string]struct {
		head string
		wrap func(string) string
		end  string
	}{
		"events, chunked":       {"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n", chunk, "0\r\n\r\n"},
		"events, until close":   {"Content-Type: text/event-stream\r\n", func(s string) string { return s }, ""},
		"JSON lines, chunked":   {"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n", chunk, "0\r\n\r\n"},
		"of no type":            {"", func(s string) string { return s }, ""},
		"of known length, long": {"Content-Length: 30\r\n", func(s string) string { return s }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			seen := make(chan struct{})
			w.origin(allowedIP+":80", func(c *originConn) {
				c.request()
				c.write("HTTP/1.1 200 OK\r\n" + tt.head + "\r\n")
				for i := range 3 {
					if i > 0 || !strings.Contains(tt.head, "Content-Length") {
						<-seen // of the piece before, or of the head
					}
					c.write(tt.wrap(fmt.Sprintf("data: %d\n\n\n", i)))
				}
				<-seen
				c.write(tt.end)
			})
			c := w.dial(std)
			c.send(get("http://allowed.test/sse"))
			head := c.head()
			body := io.Reader(c.br)
			if strings.Contains(head, "chunked") {
				r, err := http.ReadResponse(bufioReader(head, c), nil)
				require.NoError(t, err)
				body = r.Body
			}
			if !strings.Contains(tt.head, "Content-Length") {
				seen <- struct{}{}
			}
			for i := range 3 {
				b := make([]byte, len("data: 0\n\n\n"))
				_, err := io.ReadFull(body, b)
				require.NoError(t, err)
				assert.Equal(t, fmt.Sprintf("data: %d\n\n\n", i), string(b))
				seen <- struct{}{}
			}
			w.wait("the end", func() bool { return w.flows.len() == 0 })
			w.wantRecords(closed80)
			assert.Equal(t, int64(30), *w.only(audit.EgressClosed).BytesIn)
		})
	}
}

// Each piece of an upload reaches the origin before the next is written.
func TestRequestIsStreamed(t *testing.T) {
	for name, tt := range map[string]struct {
		head, end string
		wrap      func(string) string
	}{
		"chunked":         {"Transfer-Encoding: chunked\r\n", "0\r\n\r\n", chunk},
		"of known length": {"Content-Length: 30\r\n", "", func(s string) string { return s }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			seen := make(chan string)
			w.origin(allowedIP+":80", func(c *originConn) {
				r, err := http.ReadRequest(c.br)
				if !assert.NoError(t, err) {
					return
				}
				for range 3 {
					b := make([]byte, 10)
					if _, err := io.ReadFull(r.Body, b); !assert.NoError(t, err) {
						return
					}
					seen <- string(b)
				}
				_, err = r.Body.Read(make([]byte, 1))
				assert.Equal(t, io.EOF, err)
				c.write(ok("hi"))
			})
			c := w.dial(std)
			c.send("POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n" + tt.head + "\r\n")
			for i := range 3 {
				piece := fmt.Sprintf("piece %03d\n", i)
				c.send(tt.wrap(piece))
				assert.Equal(t, piece, <-seen)
			}
			c.send(tt.end)
			c.want(200, "hi")
			w.wantRecords(closed80)
			assert.Equal(t, int64(30), *w.only(audit.EgressClosed).BytesOut)
		})
	}
}

// Large bodies go through in both directions, byte for byte.
func TestLargeBodies(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
	for name, request := range map[string]string{
		"of known length": post("http://allowed.test/", body),
		"one chunk":       postChunked("http://allowed.test/", chunk(body)+"0\r\n\r\n"),
		"many chunks":     postChunked("http://allowed.test/", strings.Repeat(chunk(body[:1000]), len(body)/1000)+chunk(body[:len(body)%1000])+"0\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.origin(allowedIP+":80", func(c *originConn) {
				r, err := http.ReadRequest(c.br)
				if !assert.NoError(t, err) {
					return
				}
				b, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				c.write(ok(string(b)))
			})
			c := w.dial(std)
			go func() { _, _ = io.WriteString(c, request) }()
			_, got := c.answer(http.MethodPost)
			assert.Len(t, got, len(body))
			if !strings.Contains(name, "many") {
				assert.Equal(t, body, got)
			}
			w.finish()
			e := w.only(audit.EgressClosed)
			assert.Equal(t, int64(len(body)), *e.BytesIn)
			assert.Equal(t, int64(len(body)), *e.BytesOut)
		})
	}
}

// An origin that answers while it still reads gets the whole body, and the
// client the whole answer.
func TestAnswerBeforeTheBodyEnds(t *testing.T) {
	w := newWorld(t)
	got := make(chan string, 1)
	w.origin(allowedIP+":80", func(c *originConn) {
		r, err := http.ReadRequest(c.br)
		if !assert.NoError(t, err) {
			return
		}
		first := make([]byte, 5)
		_, err = io.ReadFull(r.Body, first)
		assert.NoError(t, err)
		c.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("got "+string(first)))
		b, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		got <- string(b)
		c.write(chunk("and the rest") + "0\r\n\r\n")
	})
	c := w.dial(std)
	c.send("POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("first"))
	r, err := http.ReadResponse(c.br, nil)
	require.NoError(t, err)
	b := make([]byte, len("got first"))
	_, err = io.ReadFull(r.Body, b)
	require.NoError(t, err)
	assert.Equal(t, "got first", string(b))
	c.send(chunk("second") + "0\r\n\r\n" + get("http://evil.test/next"))
	assert.Equal(t, "second", <-got)
	rest, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	assert.Equal(t, "and the rest", string(rest))
	c.want(403, "")
	w.wantRecords(closed80, denied80)
}

// An origin that refuses an upload at once is heard at once; the rest of the
// upload is no request.
func TestEarlyRefusalByOrigin(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":80", func(c *originConn) {
		_, err := http.ReadRequest(c.br)
		assert.NoError(t, err)
		c.write("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
	})
	c := w.dial(std)
	c.send("POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 1000000\r\n\r\n")
	c.want(401, "no")
	c.send(get("http://evil.test/hidden"))
	require.NoError(t, c.CloseWrite())
	assert.Empty(t, c.rest())
	w.wantRecords(closed80)
}

// An answer without a body does not wait for the upload either, and a short rest
// of that is passed over.
func TestEarlyAnswerWithoutBody(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":80", func(c *originConn) {
		for {
			if _, err := http.ReadRequest(c.br); err != nil {
				return
			}
			c.write("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
			_, _ = io.CopyN(io.Discard, c.br, 10)
		}
	})
	c := w.dial(std)
	for range 3 {
		c.send("POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 10\r\n\r\n01234")
		assert.False(t, c.want(401, "").Close)
		c.send("56789" + get("http://evil.test/next"))
		c.want(403, "")
	}
	w.wantRecords(closed80, denied80, closed80, denied80, closed80, denied80)
}

// R-P06: the 100 comes when the origin wants the body.
func TestExpect(t *testing.T) {
	expect := func(host string, n int) string {
		return fmt.Sprintf("POST http://%s/u HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", host, host, n)
	}
	const more = "HTTP/1.1 100 Continue\r\n\r\n"
	t.Run("allowed", func(t *testing.T) {
		w := newWorld(t)
		o := w.origin(allowedIP+":80", func(c *originConn) {
			raw := c.originHead()
			assert.Contains(t, raw, "Expect: 100-continue\r\n")
			c.write(more)
			_, err := io.CopyN(io.Discard, c.br, 1<<20)
			assert.NoError(t, err)
			c.write(ok("done"))
		})
		c := w.dial(std)
		c.send(expect("allowed.test", 1<<20))
		require.Equal(t, more, c.head())
		c.send(strings.Repeat("x", 1<<20))
		c.want(200, "done")
		w.wantRecords(closed80)
		assert.Equal(t, 1, o.accepted())
	})
	t.Run("the origin is silent, as many are", func(t *testing.T) {
		w := newWorld(t)
		w.site(allowedIP+":80", func(string) string { return ok("done") })
		c := w.dial(std)
		c.send(expect("allowed.test", 3))
		require.Equal(t, more, c.head())
		c.send("abc")
		c.want(200, "done")
	})
	for _, n := range []int{10, 1 << 20} {
		t.Run(fmt.Sprintf("the origin refuses %d bytes", n), func(t *testing.T) {
			w := newWorld(t)
			w.origin(allowedIP+":80", func(c *originConn) {
				c.originHead()
				c.write("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
			})
			c := w.dial(std)
			c.send(expect("allowed.test", n))
			assert.True(t, c.want(413, "no").Close)
			w.wantRecords(closed80)
		})
	}
	t.Run("denied", func(t *testing.T) {
		w := newWorld(t)
		c := w.dial(std)
		c.send(expect("evil.test", 1<<20))
		assert.True(t, c.want(403, "").Close, "no 100, and the end is announced")
		assert.Empty(t, c.rest())
		w.wantRefused(denied80)
	})
}

// A client that goes away in the middle of its upload is told from an origin
// that does.
func TestUploadBreaksOff(t *testing.T) {
	for name, framing := range map[string]string{"of known length": "Content-Length: 100", "chunked": "Transfer-Encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ended := make(chan bool, 1)
			w.origin(allowedIP+":80", func(c *originConn) {
				_, ok := c.request()
				ended <- ok
			})
			c := w.dial(std)
			c.send("POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n" + framing + "\r\n\r\n5\r\nabcde\r\n")
			require.NoError(t, c.CloseWrite())
			assert.False(t, <-ended, "the origin got a whole request")
			c.ended()
			w.wantRecords("egress.closed error client_closed allowed.test:80 [allowed] client|client_closed")
		})
	}
}

// A fault in a chunked body that shows only on the way ends both sides, and the
// origin's request never ends.
func TestFaultInTheMiddleOfABody(t *testing.T) {
	w := newWorld(t)
	begun, ended := make(chan struct{}), make(chan bool, 1)
	w.origin(allowedIP+":80", func(c *originConn) {
		r, err := http.ReadRequest(c.br)
		if !assert.NoError(t, err) {
			return
		}
		_, err = io.ReadFull(r.Body, make([]byte, 5))
		assert.NoError(t, err)
		close(begun)
		_, err = io.ReadAll(r.Body)
		ended <- err == nil
	})
	c := w.dial(std)
	c.send(postChunked("http://allowed.test/", chunk("first")))
	<-begun
	c.send("5\nfault\r\n0\r\n\r\n" + get("http://allowed.test/hidden"))
	assert.True(t, c.want(400, "").Close)
	assert.False(t, <-ended, "the origin got a whole request")
	assert.Empty(t, c.ended())
	w.wantRecords("egress.denied error bad_framing allowed.test:80 [allowed]")
}
