package control

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/internal/identity"
)

func TestClientGet(t *testing.T) {
	t.Parallel()
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		WriteJSON(rw, map[string]string{
			"method": r.Method, "path": r.URL.Path, "q": r.URL.Query().Get("q"), "host": r.Host,
		})
	}, nil)
	c := NewClient(w.path)
	var out map[string]string
	require.NoError(t, c.Get(t.Context(), "/v1/a b/../ü", url.Values{"q": {"x&y"}}, &out))
	assert.Equal(t, map[string]string{"method": "GET", "path": "/v1/a b/../ü", "q": "x&y", "host": "sluicegate"}, out)

	require.NoError(t, c.Get(t.Context(), "/", nil, nil), "out may be nil")
	require.Error(t, c.Get(t.Context(), "status", nil, nil), "no slash")
	require.Error(t, c.Get(t.Context(), "", nil, nil))
}

// TestClientIgnoresProxies: a tool next to agents runs with proxy variables set,
// to the very daemon it wants to ask about.
func TestClientIgnoresProxies(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	w := start(t, hello, nil)
	require.NoError(t, NewClient(w.path).Get(t.Context(), "/", nil, nil))
}

func TestClientUnreachable(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, path := range map[string]string{
		"nothing there":       filepath.Join(dir, "s"),
		"no folder":           filepath.Join(dir, "none", "s"),
		"a file":              file,
		"a file for a folder": filepath.Join(file, "s"),
	} {
		err := NewClient(path).Get(t.Context(), "/", nil, nil)
		require.ErrorIs(t, err, ErrUnreachable, name)
		assert.EqualError(t, err, "no daemon at "+path+`: start it with "sluicegate run"`, name)
	}
}

func TestClientAPIError(t *testing.T) {
	t.Parallel()
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ours":
			WriteError(rw, http.StatusNotFound, "no such event", "list them with tail")
		case "/plain":
			http.Error(rw, "<html>", http.StatusTeapot)
		case "/lies":
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(rw, `["not ours"]`)
		case "/redirect":
			http.Redirect(rw, r, "/ours", http.StatusFound)
		case "/nocontent":
			rw.WriteHeader(http.StatusNoContent)
		case "/odd":
			rw.WriteHeader(599)
		}
	}, nil)
	for path, want := range map[string]APIError{
		"/ours":      {404, "no such event", "list them with tail"},
		"/plain":     {418, "I'm a teapot", ""},
		"/lies":      {502, "Bad Gateway", ""},
		"/redirect":  {302, "Found", ""},
		"/nocontent": {204, "No Content", ""},
		"/odd":       {599, "unknown status", ""},
	} {
		var got *APIError
		require.ErrorAs(t, NewClient(w.path).Get(t.Context(), path, nil, nil), &got, path)
		assert.Equal(t, want, *got, path)
	}
	err := NewClient(w.path).Get(t.Context(), "/ours", nil, nil)
	assert.EqualError(t, err, "the daemon answered 404: no such event")
}

func TestClientUnusableAnswer(t *testing.T) {
	t.Parallel()
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json; charset=utf-8")
		switch r.URL.Path {
		case "/limit", "/above":
			size := MaxResponseBody - 2
			if r.URL.Path == "/above" {
				size++
			}
			_, _ = io.WriteString(rw, `"`+strings.Repeat("x", size)+`"`)
		case "/html":
			rw.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(rw, `{}`)
		case "/trailing":
			_, _ = io.WriteString(rw, `{} {}`)
		case "/type":
			_, _ = io.WriteString(rw, `{"a":1}`)
		case "/cut":
			rw.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(rw, `{`)
		}
	}, nil)
	c := NewClient(w.path)
	var s string
	require.NoError(t, c.Get(t.Context(), "/limit", nil, &s))
	assert.Len(t, s, MaxResponseBody-2)
	require.ErrorContains(t, c.Get(t.Context(), "/above", nil, &s), "larger than")
	require.ErrorContains(t, c.Get(t.Context(), "/html", nil, &s), "not JSON")
	var m map[string]int
	require.ErrorContains(t, c.Get(t.Context(), "/trailing", nil, &m), "decoding")
	var typeErr *json.UnmarshalTypeError
	require.ErrorAs(t, c.Get(t.Context(), "/type", nil, &s), &typeErr)
	require.ErrorIs(t, c.Get(t.Context(), "/cut", nil, &m), io.ErrUnexpectedEOF)
}

func TestClientTimeouts(t *testing.T) {
	t.Parallel()
	w := start(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := NewClient(w.path).Get(ctx, "/", nil, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, w.path)
	require.NotErrorIs(t, err, ErrUnreachable)

	cancelled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	require.ErrorIs(t, NewClient(w.path).Get(cancelled, "/", nil, nil), context.Canceled)
}

// TestClientDefaultTimeout looks at the deadline of the request instead of
// waiting for it.
func TestClientDefaultTimeout(t *testing.T) {
	t.Parallel()
	c := NewClient("/nowhere/s")
	var left time.Duration
	c.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		deadline, ok := r.Context().Deadline()
		assert.True(t, ok)
		left = time.Until(deadline)
		return nil, io.EOF
	})
	require.ErrorIs(t, c.Get(t.Context(), "/", nil, nil), io.EOF)
	assert.InDelta(t, DefaultTimeout.Seconds(), left.Seconds(), 2)

	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.ErrorIs(t, c.Get(ctx, "/", nil, nil), io.EOF)
	assert.Greater(t, left, time.Minute, "the caller's deadline rules")
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestClientRefusesImpostor(t *testing.T) {
	t.Parallel()
	w := start(t, unexpected(t), nil)
	own, _ := identity.Self().UID()
	for name, tt := range map[string]struct {
		peer identity.Peer
		err  error
		want string
	}{
		"another user":  {identity.Peer{UID: own + 1, Known: true}, nil, "run this command as that user"},
		"unknown":       {identity.Peer{How: identity.HowOrphaned}, nil, "not known"},
		"look-up fails": {identity.Peer{}, io.ErrClosedPipe, io.ErrClosedPipe.Error()},
	} {
		c := NewClient(w.path)
		c.identify = func(*net.UnixConn) (identity.Peer, error) { return tt.peer, tt.err }
		err := c.Get(t.Context(), "/", nil, nil)
		require.ErrorContains(t, err, tt.want, name)
		require.NotErrorIs(t, err, ErrUnreachable, name)
		if tt.err == nil {
			require.ErrorIs(t, err, ErrForeign, name)
		}
	}
}

func TestClientConcurrent(t *testing.T) {
	t.Parallel()
	w := start(t, hello, nil)
	c := NewClient(w.path)
	errs := make(chan error, 2*MaxConns)
	for range cap(errs) {
		go func() { errs <- c.Get(t.Context(), "/", nil, nil) }()
	}
	for range cap(errs) {
		require.NoError(t, wait(t, errs, "an answer"))
	}
}
