package control

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience bounds waits that end at once unless something is broken.
const patience = 20 * time.Second

// shortDir returns a new folder of our own whose name leaves room for a socket,
// which that of t.TempDir doesn't.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// journal is a log that tests can read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// world is one running server.
type world struct {
	*Server
	path string
	log  *journal
}

// start runs a server in a new folder; edit, if not nil, changes its options.
func start(t *testing.T, h http.HandlerFunc, edit func(*Options)) *world {
	t.Helper()
	w := &world{path: filepath.Join(shortDir(t), "run", "control.sock"), log: &journal{}}
	o := Options{Path: w.path, Handler: h, Logger: slog.New(slog.NewTextHandler(w.log, nil))}
	if edit != nil {
		edit(&o)
	}
	s, err := Listen(t.Context(), o)
	require.NoError(t, err)
	s.Start()
	w.Server, w.path = s, o.Path
	t.Cleanup(func() {
		// Not by Close, which leaves lingering connections for goleak to find.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, s.Shutdown(ctx))
	})
	return w
}

// unexpected is a handler that must not be called.
func unexpected(t *testing.T) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("unexpected request for %s", r.URL)
	}
}

func hello(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, map[string]string{"say": "hello"}) }

// dial connects to the server as a bare client.
func (w *world) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", w.path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// send writes raw bytes and returns the status and body of the answer.
func (w *world) send(t *testing.T, raw string) (status int, body string) {
	t.Helper()
	c := w.dial(t)
	_, err := io.WriteString(c, raw)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

// request returns the bytes of a request with the right Host.
func request(method, target string, headers ...string) string {
	lines := append([]string{method + " " + target + " HTTP/1.1", "Host: sluicegate"}, headers...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// wait fails the test unless c is closed or gets a value soon.
func wait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case v := <-c:
		return v
	case <-ctx.Done():
		require.FailNow(t, "waited too long for "+what)
		panic("unreachable")
	}
}
