package control

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/internal/identity"
)

func TestServerLifecycle(t *testing.T) {
	t.Parallel()
	w := start(t, hello, nil)
	w.Start() // again: nothing happens
	assert.Equal(t, w.path, w.Path())
	var out map[string]string
	require.NoError(t, NewClient(w.path).Get(t.Context(), "/", nil, &out))
	assert.Equal(t, map[string]string{"say": "hello"}, out)

	select {
	case <-w.Done():
		t.Fatal("done while it serves")
	default:
	}
	require.NoError(t, w.Shutdown(t.Context()))
	wait(t, w.Done(), "the end of serving")
	assert.NoFileExists(t, w.path)
	require.NoError(t, w.Shutdown(t.Context()), "again")
	require.NoError(t, w.Close(), "and after it")
	w.Start()
	require.ErrorIs(t, NewClient(w.path).Get(t.Context(), "/", nil, nil), ErrUnreachable)

	second, err := Listen(t.Context(), Options{Path: w.path, Handler: http.HandlerFunc(hello)})
	require.NoError(t, err, "the lock is free")
	require.NoError(t, second.Close())
}

func TestServerNeverStarted(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Server) error{
		"close":    (*Server).Close,
		"shutdown": func(s *Server) error { return s.Shutdown(context.Background()) },
	} {
		path := shortDir(t) + "/s"
		s, err := Listen(t.Context(), Options{Path: path, Handler: http.HandlerFunc(hello)})
		require.NoError(t, err, name)
		require.NoError(t, end(s), name)
		s.Start() // too late: nothing happens
		wait(t, s.Done(), "the end")
		assert.NoFileExists(t, path, name)
	}
}

func TestListenOptions(t *testing.T) {
	t.Parallel()
	_, err := Listen(t.Context(), Options{})
	require.ErrorContains(t, err, "without a handler")
	require.ErrorIs(t, err, ErrPath, "all problems are reported")

	// A nil Logger is allowed, also where something is logged.
	w := start(t, func(http.ResponseWriter, *http.Request) { panic("boom") }, func(o *Options) { o.Logger = nil })
	status, _ := w.send(t, request("GET", "/"))
	assert.Equal(t, http.StatusInternalServerError, status)
}

func TestShutdownWaitsForHandlers(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		hello(rw, r)
	}, nil)
	answer := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { answer <- NewClient(w.path).Get(t.Context(), "/", nil, nil) })
	wait(t, entered, "the request")

	down := make(chan error, 1)
	wg.Go(func() { down <- w.Shutdown(t.Context()) })
	wait(t, w.Done(), "the end of accepting")
	_, err := Listen(t.Context(), Options{Path: w.path, Handler: http.HandlerFunc(hello)})
	require.ErrorIs(t, err, ErrRunning, "the lock is held while a request is answered")
	select {
	case <-down:
		t.Fatal("shut down while a request was being answered")
	default:
	}
	close(leave)
	require.NoError(t, wait(t, answer, "the answer"))
	require.NoError(t, wait(t, down, "the shutdown"))
}

func TestShutdownCutsAtDeadline(t *testing.T) {
	t.Parallel()
	entered, left := make(chan struct{}), make(chan struct{})
	w := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	}, nil)
	c := w.dial(t)
	_, err := io.WriteString(c, request("GET", "/"))
	require.NoError(t, err)
	wait(t, entered, "the request")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.Shutdown(ctx), context.Canceled)
	wait(t, left, "the handler's context")
	_, err = io.ReadAll(c)
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection was cut")
}

func TestCloseCancelsHandlers(t *testing.T) {
	t.Parallel()
	entered, left := make(chan struct{}), make(chan struct{})
	w := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	}, nil)
	_, err := io.WriteString(w.dial(t), request("GET", "/"))
	require.NoError(t, err)
	wait(t, entered, "the request")
	require.NoError(t, w.Close())
	wait(t, left, "the handler's context")
}

func TestConcurrentEnds(t *testing.T) {
	t.Parallel()
	w := start(t, hello, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(w.Start)
		wg.Go(func() { assert.NoError(t, w.Close()) })
		wg.Go(func() { assert.NoError(t, w.Shutdown(t.Context())) })
	}
	wg.Wait()
}

func TestServerLimitsAsDesigned(t *testing.T) {
	t.Parallel()
	w := start(t, hello, nil)
	assert.Equal(t, 5*time.Second, w.http.ReadHeaderTimeout)
	assert.Equal(t, 30*time.Second, w.http.WriteTimeout)
	assert.Equal(t, 30*time.Second, w.http.ReadTimeout)
	assert.Equal(t, 8<<10, w.http.MaxHeaderBytes)
	assert.Equal(t, 32, cap(w.gate.slots))
	assert.Positive(t, w.http.IdleTimeout)
	assert.Equal(t, 64<<10, MaxRequestBody)
}

func TestSlowClientIsCut(t *testing.T) {
	t.Parallel()
	w := start(t, unexpected(t), func(o *Options) { o.testOnlyReadHeaderTimeout = 20 * time.Millisecond })
	for name, sent := range map[string]string{"silent": "", "half a head": "GET / HTTP/1.1\r\nHost: slu"} {
		c := w.dial(t)
		_, err := io.WriteString(c, sent)
		require.NoError(t, err, name)
		_, err = io.ReadAll(c)
		assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, name)
	}
}

func TestConnectionsBeyondTheCapWait(t *testing.T) {
	t.Parallel()
	const limit = 2
	entered, leave := make(chan struct{}, limit+1), make(chan struct{})
	var mu sync.Mutex
	active, most := 0, 0
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		active++
		most = max(most, active)
		mu.Unlock()
		entered <- struct{}{}
		<-leave
		mu.Lock()
		active--
		mu.Unlock()
		hello(rw, r)
	}, func(o *Options) { o.testOnlyMaxConns = limit })

	errs := make(chan error, limit+1)
	var wg sync.WaitGroup
	defer wg.Wait()
	ask := func() { errs <- NewClient(w.path).Get(t.Context(), "/", nil, nil) }
	for range limit {
		wg.Go(ask)
	}
	for range limit {
		wait(t, entered, "a request")
	}
	wg.Go(ask)
	assert.Len(t, w.gate.slots, limit)
	close(leave)
	for range limit + 1 {
		require.NoError(t, wait(t, errs, "an answer"))
	}
	mu.Lock()
	defer mu.Unlock()
	assert.LessOrEqual(t, most, limit)
}

// TestFullServerStops: while all slots are taken, the accepting goroutine holds
// one more connection. A shutdown must not wait for that one to be served.
func TestFullServerStops(t *testing.T) {
	t.Parallel()
	identified := make(chan struct{}, 2)
	entered, leave := make(chan struct{}), make(chan struct{})
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		close(entered) // panics if a second request gets in
		<-leave
		hello(rw, r)
	}, func(o *Options) {
		o.testOnlyMaxConns = 1
		o.testOnlyIdentify = func(c *net.UnixConn) (identity.Peer, error) {
			identified <- struct{}{}
			return identity.Unix(c)
		}
	})
	served, waiting := w.dial(t), w.dial(t)
	for _, c := range []net.Conn{served, waiting} {
		_, err := io.WriteString(c, request("GET", "/"))
		require.NoError(t, err)
	}
	wait(t, identified, "the first connection")
	wait(t, entered, "its request")
	wait(t, identified, "the second connection, which gets no slot")

	down := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { down <- w.Shutdown(t.Context()) })
	wait(t, w.Done(), "the end of accepting")
	b, _ := io.ReadAll(waiting)
	assert.Empty(t, b)
	close(leave)
	require.NoError(t, wait(t, down, "the shutdown"))
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	w := start(t, hello, nil)
	c := w.dial(t)
	r := bufio.NewReader(c)
	for range 3 {
		_, err := io.WriteString(c, request("GET", "/"))
		require.NoError(t, err)
		resp, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusOK, resp.StatusCode)
	}
}

func TestServerErrorsAreLogged(t *testing.T) {
	t.Parallel()
	w := start(t, hello, nil)
	w.http.ErrorLog.Print("from net/http")
	assert.Contains(t, w.log.String(), "from net/http")
	assert.Contains(t, w.log.String(), "level=WARN")
}
