package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/internal/identity"
)

func TestBrowsersAreRefused(t *testing.T) {
	t.Parallel()
	w := start(t, unexpected(t), nil)
	raw := func(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }
	tests := map[string]struct {
		raw    string
		status int
	}{
		"loopback host":         {raw("GET /healthz HTTP/1.1", "Host: 127.0.0.1:9901"), 403},
		"localhost":             {raw("GET / HTTP/1.1", "Host: localhost"), 403},
		"rebound name":          {raw("GET / HTTP/1.1", "Host: evil.test"), 403},
		"host with port":        {raw("GET / HTTP/1.1", "Host: sluicegate:80"), 403},
		"host in capitals":      {raw("GET / HTTP/1.1", "Host: Sluicegate"), 403},
		"host with dot":         {raw("GET / HTTP/1.1", "Host: sluicegate."), 403},
		"longer host":           {raw("GET / HTTP/1.1", "Host: sluicegate.evil.test"), 403},
		"empty host":            {raw("GET / HTTP/1.1", "Host:"), 403},
		"no host, http/1.0":     {raw("GET / HTTP/1.0"), 403},
		"no host":               {raw("GET / HTTP/1.1"), 400},
		"two hosts":             {raw("GET / HTTP/1.1", "Host: sluicegate", "Host: sluicegate"), 400},
		"absolute form":         {raw("GET http://sluicegate/ HTTP/1.1", "Host: evil.test"), 403},
		"absolute form, host":   {raw("GET http://sluicegate/ HTTP/1.1", "Host: sluicegate"), 403},
		"absolute form, evil":   {raw("GET http://evil.test/ HTTP/1.1", "Host: sluicegate"), 403},
		"connect":               {raw("CONNECT sluicegate:443 HTTP/1.1", "Host: sluicegate"), 403},
		"connect, right target": {raw("CONNECT sluicegate HTTP/1.1", "Host: sluicegate"), 403},
		"origin":                {request("GET", "/", "Origin: https://evil.test"), 403},
		"origin null":           {request("GET", "/", "Origin: null"), 403},
		"origin empty":          {request("GET", "/", "Origin:"), 403},
		"origin in small":       {request("GET", "/", "origin: http://sluicegate"), 403},
		"fetch metadata":        {request("GET", "/", "Sec-Fetch-Site: none"), 403},
		"csrf post": {raw("POST /reload HTTP/1.1", "Host: 127.0.0.1:9901", "Origin: https://evil.test",
			"Content-Type: text/plain", "Content-Length: 0"), 403},
		"websocket": {raw("GET /ws HTTP/1.1", "Host: 127.0.0.1:9901", "Upgrade: websocket", "Connection: Upgrade",
			"Origin: https://evil.test", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"), 403},
		"preflight": {raw("OPTIONS /reload HTTP/1.1", "Host: 127.0.0.1:9901", "Origin: https://evil.test",
			"Access-Control-Request-Private-Network: true"), 403},
		"options of the server": {raw("OPTIONS * HTTP/1.1", "Host: evil.test"), 403},
		"http/2 preface":        {raw("PRI * HTTP/2.0", "", "SM"), 403},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body := w.send(t, tt.raw)
			assert.Equal(t, tt.status, status, body)
			if status == http.StatusForbidden && !strings.HasPrefix(tt.raw, "CONNECT") {
				var e errorBody
				require.NoError(t, json.Unmarshal([]byte(body), &e))
				assert.NotEmpty(t, e.Error)
				assert.NotEmpty(t, e.Hint)
				assert.NotContains(t, body, "evil", "what was sent is not repeated")
			}
		})
	}
}

func TestRequestLimits(t *testing.T) {
	t.Parallel()
	// The handler says how much of the body it got and why it ended.
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			WriteError(rw, http.StatusRequestEntityTooLarge, "cut", "")
			return
		}
		WriteJSON(rw, n)
	}, nil)
	post := func(n int) string {
		return request("POST", "/", fmt.Sprintf("Content-Length: %d", n)) + strings.Repeat("x", n)
	}
	chunked := func(n int) string {
		return request("POST", "/", "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n", n) + strings.Repeat("x", n) + "\r\n0\r\n\r\n"
	}
	head := func(n int) string { return request("GET", "/", "X-Pad: "+strings.Repeat("x", n)) }
	tests := map[string]struct {
		raw    string
		status int
		body   string
	}{
		"body just below the limit":    {post(MaxRequestBody - 1), 200, "65535\n"},
		"body at the limit":            {post(MaxRequestBody), 200, "65536\n"},
		"body above the limit":         {post(MaxRequestBody + 1), 413, ""},
		"chunked at the limit":         {chunked(MaxRequestBody), 200, "65536\n"},
		"chunked above the limit":      {chunked(MaxRequestBody + 1), 413, `{"error":"cut"}` + "\n"},
		"huge body, declared only":     {request("POST", "/", "Content-Length: 9000000000"), 413, ""},
		"head at the limit":            {head(MaxHeaderBytes - 100), 200, "0\n"},
		"head above limit and slack":   {head(MaxHeaderBytes + 4096 + 100), 431, ""},
		"target above limit and slack": {request("GET", "/"+strings.Repeat("x", MaxHeaderBytes+4096)), 431, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body := w.send(t, tt.raw)
			assert.Equal(t, tt.status, status)
			if tt.body != "" {
				assert.Equal(t, tt.body, body)
			}
		})
	}
}

func TestPanicsAreContained(t *testing.T) {
	t.Parallel()
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/before":
			panic("boom\nforged=line")
		case "/during":
			_, _ = io.WriteString(rw, `{"half":`)
			_ = http.NewResponseController(rw).Flush()
			panic("boom")
		case "/abort":
			panic(http.ErrAbortHandler)
		default:
			hello(rw, r)
		}
	}, nil)
	status, body := w.send(t, request("GET", "/before"))
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.NotContains(t, body, "boom", "the answer gives no inside away")
	assert.Contains(t, w.log.String(), `panic="boom\nforged=line"`)
	assert.Contains(t, w.log.String(), "guard_test.go", "the stack is logged")

	for _, path := range []string{"/during", "/abort"} {
		c := w.dial(t)
		_, err := io.WriteString(c, request("GET", path))
		require.NoError(t, err)
		b, err := io.ReadAll(c)
		require.NoError(t, err, path)
		assert.Equal(t, path == "/during", strings.Contains(string(b), `{"half":`), path)
		assert.NotContains(t, string(b), "\r\n0\r\n\r\n", "half an answer is not ended like a whole one")
		assert.NotContains(t, string(b), "internal error", "and nothing is added to it")
	}
	status, _ = w.send(t, request("GET", "/"))
	assert.Equal(t, http.StatusOK, status, "the server lives")
}

func TestRecorder(t *testing.T) {
	t.Parallel()
	rec := &recorder{ResponseWriter: httptest.NewRecorder()}
	rec.WriteHeader(http.StatusEarlyHints)
	assert.False(t, rec.wrote, "an answer is still to come")
	rec.WriteHeader(http.StatusOK)
	assert.True(t, rec.wrote)
}

func TestResponseController(t *testing.T) {
	t.Parallel()
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		assert.NoError(t, http.NewResponseController(rw).Flush())
		hello(rw, r)
	}, nil)
	status, _ := w.send(t, request("GET", "/"))
	assert.Equal(t, http.StatusOK, status)
}

func TestOtherUsersAreRefused(t *testing.T) {
	t.Parallel()
	own, _ := identity.Self().UID()
	tests := map[string]struct {
		peer identity.Peer
		err  error
		log  []string
	}{
		"neighbour":     {identity.Peer{UID: own + 1, Known: true, How: identity.HowPeerCred}, nil, []string{fmt.Sprintf("uid=%d", own+1), "uid_known=true"}},
		"zero peer":     {identity.Peer{}, nil, []string{"uid_known=false"}},
		"look-up fails": {identity.Peer{}, errors.New("no answer"), []string{"no answer"}},
		"fails, yet own": {
			identity.Peer{UID: own, Known: true, How: identity.HowPeerCred},
			errors.New("no answer"),
			[]string{"no answer"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, unexpected(t), func(o *Options) {
				o.testOnlyIdentify = func(*net.UnixConn) (identity.Peer, error) { return tt.peer, tt.err }
			})
			c := w.dial(t)
			_, _ = io.WriteString(c, request("GET", "/")) // may meet a closed connection
			b, _ := io.ReadAll(c)
			assert.Empty(t, b, "not a byte is answered")
			require.NoError(t, w.Close())
			assert.Contains(t, w.log.String(), "level=WARN")
			assert.Contains(t, w.log.String(), "another user refused")
			for _, s := range tt.log {
				assert.Contains(t, w.log.String(), s)
			}
			assert.Empty(t, w.gate.slots, "they take no slot")
		})
	}
}
