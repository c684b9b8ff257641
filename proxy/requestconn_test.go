package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pair is a connection as net/http gets it, with the client at its other end.
func pair(t *testing.T) (*requestConn, *client) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	out, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	in, err := ln.Accept()
	require.NoError(t, err)
	base, stop := context.WithCancel(context.Background())
	rc := newRequestConn(base, in.(*net.TCPConn), Limits{}.withDefaults())
	rc.closed = func(*head) {}
	rc.resume = func() { t.Error("resumed without a cause") }
	c := newClient(t, out.(*net.TCPConn))
	t.Cleanup(func() {
		stop()
		_ = c.Close()
		_ = in.Close()
	})
	return rc, c
}

// first reads the first head, as accept does.
func first(t *testing.T, rc *requestConn) *head {
	t.Helper()
	h, f := rc.next()
	require.Nil(t, f)
	require.NotNil(t, h)
	return h
}

// take reads n bytes as net/http does.
func take(t *testing.T, rc *requestConn, n int) string {
	t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(rc, b)
	require.NoError(t, err)
	return string(b)
}

// A request whose body was not passed over as a whole is the last one, whatever
// net/http believes: nothing is handed out after it.
func TestRestOfABodyIsNeverHandedOut(t *testing.T) {
	hidden := get("http://evil.test/hidden")
	for name, tt := range map[string]struct {
		body string
		read int
	}{
		"known length, untouched": {post("http://allowed.test/", hidden), 0},
		"known length, begun":     {post("http://allowed.test/", hidden), 10},
		"chunked, untouched":      {postChunked("http://allowed.test/", chunk(hidden)+"0\r\n\r\n"), 0},
		"chunked, begun":          {postChunked("http://allowed.test/", chunk(hidden)+"0\r\n\r\n"), 10},
		"fault":                   {postChunked("http://allowed.test/", "zz\r\n"+hidden), 0},
	} {
		t.Run(name, func(t *testing.T) {
			rc, c := pair(t)
			c.send(tt.body + hidden)
			first(t, rc)
			require.NotNil(t, rc.claim())
			headLen := rc.ready
			take(t, rc, headLen+tt.read)
			rc.answered()
			n, err := rc.Read(make([]byte, 100))
			assert.Zero(t, n)
			assert.Equal(t, io.EOF, err)
			assert.Nil(t, rc.claim(), "there is no request")
		})
	}
}

// A request is claimed once, by the handler of the bytes that were handed out.
func TestClaim(t *testing.T) {
	rc, c := pair(t)
	assert.Nil(t, rc.claim())
	one, two := get("http://allowed.test/1"), get("http://allowed.test/2")
	c.send(one + two)
	first(t, rc)
	assert.Equal(t, one, take(t, rc, len(one)))
	require.Equal(t, "http://allowed.test/1", rc.claim().target)
	assert.Nil(t, rc.claim())
	rc.answered()
	assert.Nil(t, rc.claim())
	assert.Equal(t, two, take(t, rc, len(two)))
	assert.Equal(t, "http://allowed.test/2", rc.claim().target)
}

// While a request is in flight the next one is not handed out, and net/http's
// read-ahead can be called off at any time.
func TestReadAheadIsHeld(t *testing.T) {
	rc, c := pair(t)
	one, two := get("http://allowed.test/1"), get("http://allowed.test/2")
	c.send(one + two)
	first(t, rc)
	take(t, rc, len(one))
	for range 3 {
		ahead := make(chan error)
		go func() {
			n, err := rc.Read(make([]byte, 1))
			if n > 0 {
				err = io.ErrShortBuffer
			}
			ahead <- err
		}()
		require.NoError(t, rc.SetReadDeadline(past))
		assert.ErrorIs(t, <-ahead, os.ErrDeadlineExceeded)
		require.NoError(t, rc.SetReadDeadline(time.Time{}))
	}
	ahead := make(chan error)
	go func() {
		_, err := rc.Read(make([]byte, 1))
		ahead <- err
	}()
	require.NoError(t, rc.Close())
	assert.Error(t, <-ahead)
	assert.ErrorIs(t, rc.Close(), net.ErrClosed)
}

// net/http must have read the request that was validated.
func TestDescribes(t *testing.T) {
	h := &head{method: "POST", target: "http://a.test/", length: 4}
	same := func() *http.Request {
		return &http.Request{Method: "POST", RequestURI: "http://a.test/", ContentLength: 4}
	}
	assert.True(t, h.describes(same()))
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Method = "GET" },
		func(r *http.Request) { r.RequestURI = "http://b.test/" },
		func(r *http.Request) { r.ContentLength = 5 },
		func(r *http.Request) { r.ContentLength = -1 },
	} {
		r := same()
		change(r)
		assert.False(t, h.describes(r))
	}
	assert.True(t, (&head{length: -1}).describes(&http.Request{}))
	assert.True(t, (&head{length: -1, chunked: true}).describes(&http.Request{ContentLength: -1}))
}

// A handler that meets a request which nobody validated, or another one than was
// validated, serves nothing.
func TestHandlerWithoutValidatedHead(t *testing.T) {
	w := newWorld(t)
	p := w.profiles[std]
	none, _ := pair(t)
	other, c := pair(t)
	c.send(get("http://other.test/"))
	first(t, other)
	with := func(rc *requestConn) context.Context {
		return context.WithValue(t.Context(), connKey{}, &clientConn{l: &listener{s: w.Server, profile: p}, rc: rc})
	}
	for name, ctx := range map[string]context.Context{
		"no connection": t.Context(), "no head": with(none), "another head": with(other),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://allowed.test/", nil)
			require.NoError(t, err)
			r.RequestURI = "http://allowed.test/"
			assert.PanicsWithValue(t, http.ErrAbortHandler, func() { p.serveHTTP(nil, r) })
		})
	}
	w.wantRecords()
	w.wantDials()
}

// After a last answer the gate reads on until the client has closed, so that no
// reset overtakes the answer.
func TestLastAnswerLingers(t *testing.T) {
	rc, c := pair(t)
	done := make(chan *head, 1)
	rc.closed = func(unseen *head) { done <- unseen }
	request := get("http://allowed.test/")
	c.send(request + "more")
	first(t, rc)
	take(t, rc, len(request))
	require.NotNil(t, rc.claim())
	_, err := rc.Write([]byte("answer"))
	require.NoError(t, err)
	require.NoError(t, rc.Close())
	go rc.finished()
	assert.Equal(t, "answer", c.rest())
	select {
	case <-done:
		t.Error("it did not wait for the client")
	default:
	}
	for range 3 { // were the socket closed, the first would reset the connection
		c.send("and more")
	}
	require.NoError(t, c.Close())
	assert.Nil(t, <-done)
}

// A connection on which a request was handed out that no handler saw says so.
func TestUnseenRequest(t *testing.T) {
	rc, c := pair(t)
	done := make(chan *head, 1)
	rc.closed = func(unseen *head) { done <- unseen }
	c.send(get("http://evil.test/"))
	first(t, rc)
	require.NoError(t, rc.Close())
	require.NoError(t, c.CloseWrite())
	rc.finished()
	assert.Equal(t, "http://evil.test/", (<-done).target)

	w := newWorld(t)
	l := &listener{s: w.Server, profile: w.profiles[std]}
	w.wg.Add(1)
	w.conns.Add(1)
	w.profiles[std].conns.Add(1)
	(&clientConn{l: l, rc: rc}).closedByServer(partialHead([]byte("GET http://evil.test/ HTTP/1.1")))
	w.wantRecords("egress.denied error malformed evil.test:80")
}

// A large head does not leave a large buffer with a connection that waits.
func TestLargeBufferIsDropped(t *testing.T) {
	rc, c := pair(t)
	request := "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nX: " + strings.Repeat("x", 20000) + "\r\n\r\n"
	c.send(request)
	first(t, rc)
	take(t, rc, len(request))
	assert.Greater(t, cap(rc.in), headBuffer)
	require.NotNil(t, rc.claim())
	rc.answered()
	c.send(get("http://allowed.test/"))
	take(t, rc, len(get("http://allowed.test/")))
	assert.Equal(t, headBuffer, cap(rc.in))
}

// Buffers are given back once, and only by those who no longer read.
func TestBufferIsReleasedOnce(t *testing.T) {
	rc, _ := pair(t)
	assert.False(t, rc.released())
	rc.release()
	assert.True(t, rc.released())
	assert.Nil(t, rc.in)
	rc.release()
	a, b := bufferPool.Get().(*[]byte), bufferPool.Get().(*[]byte)
	assert.NotSame(t, a, b)
}
