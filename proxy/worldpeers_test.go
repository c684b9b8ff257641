package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// client is a program that speaks to the gate, byte by byte.
type client struct {
	t testing.TB
	*net.TCPConn
	br *bufio.Reader
}

func newClient(t testing.TB, c *net.TCPConn) *client {
	_ = c.SetDeadline(time.Now().Add(patience))
	return &client{t: t, TCPConn: c, br: bufio.NewReader(c)}
}

// send writes s as it is.
func (c *client) send(s string) {
	c.t.Helper()
	_, err := io.WriteString(c, s)
	require.NoError(c.t, err)
}

// head reads a response head as it is, with its empty line.
func (c *client) head() string {
	c.t.Helper()
	var b strings.Builder
	for {
		line, err := c.br.ReadString('\n')
		b.WriteString(line)
		require.NoError(c.t, err, "read so far: %q", b.String())
		if line == "\r\n" {
			return b.String()
		}
	}
}

// answer reads one response with its body.
func (c *client) answer(method string) (*http.Response, string) {
	c.t.Helper()
	r, err := http.ReadResponse(c.br, &http.Request{Method: method})
	require.NoError(c.t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(c.t, err)
	return r, string(b)
}

// status reads a response head and returns its status.
func (c *client) status() int {
	c.t.Helper()
	n, err := strconv.Atoi(strings.Fields(c.head())[1])
	require.NoError(c.t, err)
	return n
}

// want reads one response to a GET and compares status and body.
func (c *client) want(status int, body string) *http.Response {
	c.t.Helper()
	r, got := c.answer(http.MethodGet)
	require.Equal(c.t, status, r.StatusCode, "%s", got)
	if body != "" {
		require.Equal(c.t, body, got)
	}
	return r
}

// read reads exactly n bytes.
func (c *client) read(n int) string {
	c.t.Helper()
	b := make([]byte, n)
	got, err := io.ReadFull(c.br, b)
	require.NoError(c.t, err, "read so far: %q", b[:got])
	return string(b)
}

// rest reads to the end of the stream, which must be in order.
func (c *client) rest() string {
	c.t.Helper()
	b, err := io.ReadAll(c.br)
	require.NoError(c.t, err)
	return string(b)
}

// ended reads to the end of the stream, in order or by a reset.
func (c *client) ended() string {
	c.t.Helper()
	b, err := io.ReadAll(c.br)
	require.False(c.t, errors.Is(err, os.ErrDeadlineExceeded), "the connection is still open; read so far: %q", b)
	return string(b)
}

// silent wants that nothing has arrived. What the gate wrote before the test
// came here is there already: loopback delivers at once.
func (c *client) silent() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	b, err := c.br.Peek(1)
	require.ErrorIs(c.t, err, os.ErrDeadlineExceeded, "arrived: %q", b)
	_ = c.SetReadDeadline(time.Now().Add(patience))
}

// origin is a server at an address of the fake internet.
type origin struct {
	t     testing.TB
	ln    net.Listener
	serve func(*originConn)
	wg    sync.WaitGroup

	mu    sync.Mutex
	raw   []string
	conns []*originConn
	n     int
}

// originConn is one connection that an origin accepted.
type originConn struct {
	*client
	o   *origin
	raw *bytes.Buffer // what was received and is not read yet, and more
	// done is closed when it was served to its end.
	done chan struct{}
}

// origin puts a server at an address; serve gets each of its connections, which
// end with it.
func (w *world) origin(addr string, serve func(*originConn)) *origin {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	o := &origin{t: w.t, ln: ln, serve: serve}
	w.net.at(addr, func(ctx context.Context) (*net.TCPConn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	})
	w.net.origins = append(w.net.origins, o)
	o.wg.Add(1)
	go o.accept()
	return o
}

func (o *origin) accept() {
	defer o.wg.Done()
	for {
		c, err := o.ln.Accept()
		if err != nil {
			return
		}
		oc := &originConn{client: newClient(o.t, c.(*net.TCPConn)), o: o, raw: &bytes.Buffer{}, done: make(chan struct{})}
		oc.br = bufio.NewReader(io.TeeReader(c, oc.raw))
		o.mu.Lock()
		o.conns = append(o.conns, oc)
		o.n++
		o.mu.Unlock()
		o.wg.Add(1)
		go func() {
			defer o.wg.Done()
			defer close(oc.done)
			defer func() { _ = oc.Close() }()
			o.serve(oc)
		}()
	}
}

func (o *origin) close() {
	_ = o.ln.Close()
	o.mu.Lock()
	for _, c := range o.conns {
		_ = c.Close()
	}
	o.mu.Unlock()
	o.wg.Wait()
}

// requests are the requests that arrived as a whole, byte by byte.
func (o *origin) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.raw...)
}

// accepted is how many connections there were.
func (o *origin) accepted() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// received is how many bytes came over the origin's only connection.
func (o *origin) received(w *world) int {
	w.t.Helper()
	w.wait("the origin's connection", func() bool { return o.accepted() == 1 })
	o.mu.Lock()
	c := o.conns[0]
	o.mu.Unlock()
	<-c.done
	return c.raw.Len()
}

// request reads one request with its body; ok is false at the end.
func (c *originConn) request() (raw string, ok bool) {
	r, err := http.ReadRequest(c.br)
	if err != nil {
		return "", false
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return "", false
	}
	raw = string(c.raw.Next(c.raw.Len() - c.br.Buffered()))
	c.o.mu.Lock()
	c.o.raw = append(c.o.raw, raw)
	c.o.mu.Unlock()
	return raw, true
}

// originHead reads the head of a request.
func (c *originConn) originHead() string {
	var b strings.Builder
	for !strings.HasSuffix(b.String(), "\r\n\r\n") {
		line, err := c.br.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			break
		}
	}
	return b.String()
}

// write writes s; the other side may be gone.
func (c *originConn) write(s string) { _, _ = io.WriteString(c, s) }

// site is an origin that answers every request with answer(request).
func (w *world) site(addr string, answer func(raw string) string) *origin {
	return w.origin(addr, func(c *originConn) {
		for {
			raw, ok := c.request()
			if !ok {
				return
			}
			c.write(answer(raw))
		}
	})
}

// ok is a response with a body of known length.
func ok(body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// firstLine is the request line.
func firstLine(raw string) string {
	line, _, _ := strings.Cut(raw, "\r\n")
	return line
}

// echo sends everything back and then ends its side.
func echo(c *originConn) {
	_, _ = io.Copy(c.TCPConn, c.br)
	_ = c.CloseWrite()
}

// bufioReader puts a head that was read back in front of a connection.
func bufioReader(head string, c *client) *bufio.Reader {
	return bufio.NewReader(io.MultiReader(strings.NewReader(head), c.br))
}

// get is a GET by way of the gate.
func get(url string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	return "GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
}

// connectTo is a CONNECT.
func connectTo(authority string) string {
	return "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n"
}

// tunnelTo opens a tunnel.
func (w *world) tunnelTo(profile, authority string) *client {
	w.t.Helper()
	c := w.dial(profile)
	c.send(connectTo(authority))
	require.Equal(w.t, established, c.head())
	return c
}
