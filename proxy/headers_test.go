package proxy

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/policy"
)

func TestRemoveHopByHop(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"nothing":        {"Accept: a\r\nX-A: 1\r\n", "Accept: a\r\nX-A: 1\r\n"},
		"all of the hop": {"Connection: close\r\nProxy-Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\nProxy-Authorization: Basic dTpw\r\nProxy-Authenticate: Basic\r\nProxy-Authentication-Info: x\r\nX-A: 1\r\n", "X-A: 1\r\n"},
		"named":          {"Connection: close, X-Secret ,x-OTHER\r\nX-Secret: 1\r\nX-Other: 2\r\nX-A: 1\r\n", "X-A: 1\r\n"},
		"named twice":    {"Connection: X-B\r\nConnection: X-C\r\nX-B: 1\r\nX-C: 2\r\nX-B: 3\r\n", ""},
		"protected": {
			"Connection: Authorization, Content-Length, Content-Type, Cookie, Host, Transfer-Encoding, Date, Cache-Control\r\nAuthorization: a\r\nContent-Type: t\r\nCookie: c\r\nDate: d\r\nCache-Control: x\r\n",
			"Authorization: a\r\nCache-Control: x\r\nContent-Type: t\r\nCookie: c\r\nDate: d\r\n",
		},
		"oddities": {"Connection: , ,,\r\nConnection:\r\nX-A: 1\r\n", "X-A: 1\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: a\r\n" + tt.in + "\r\n")))
			require.NoError(t, err)
			removeHopByHop(r.Header)
			var b strings.Builder
			require.NoError(t, r.Header.Write(&b))
			assert.Equal(t, tt.want, b.String())
		})
	}
}

func TestValidFields(t *testing.T) {
	assert.True(t, validFields(http.Header{"A": {"", "b\tc", "\xff"}}))
	for _, h := range []http.Header{{"A": {"x\x00"}}, {"A": {"ok", "x\r\nB: c"}}, {"A b": {"x"}}, {"": {"x"}}, {"A": {"\x7f"}}} {
		assert.False(t, validFields(h), "%q", h)
	}
}

func TestCleanTrailer(t *testing.T) {
	h := http.Header{"X-Sum": {"1"}, "Content-Length": {"1"}, "Upgrade": {"x"}, "Www-Authenticate": {"x"}, "X-Bad": {"\x00"}, "If-Match": {"x"}, "X-Later": nil}
	cleanTrailer(h)
	assert.Equal(t, http.Header{"X-Sum": {"1"}, "X-Later": nil}, h)
	cleanTrailer(nil)
}

// The Host that the origin gets is the client's if it names the target.
func TestHostField(t *testing.T) {
	for _, tt := range []struct{ target, host, want string }{
		{"http://a.test/", "a.test", "a.test"},
		{"http://a.test/", "A.Test", "A.Test"},
		{"http://a.test/", "a.test.", "a.test."},
		{"http://a.test/", "a.test:80", "a.test:80"},
		{"http://a.test:80/", "a.test", "a.test"},
		{"http://a.test:8080/", "a.test:8080", "a.test:8080"},
		{"http://a.test:8080/", "a.test", "a.test:8080"},
		{"http://a.test/", "b.test", "a.test"},
		{"http://a.test/", "a.test:81", "a.test"},
		{"http://a.test/", "a.test:080", "a.test"},
		{"http://a.test/", "", "a.test"},
		{"http://a.test/", "a.test:80:80", "a.test"},
		{"http://A.test./", "", "a.test"},
		{"http://[2606:2800::1]/", "[2606:2800::1]", "[2606:2800::1]"},
		{"http://[2606:2800::1]/", "2606:2800::1", "[2606:2800::1]"},
		{"http://[2606:2800:0::1]:81/", "", "[2606:2800::1]:81"},
		{"http://[::ffff:1.2.3.4]/", "[::ffff:1.2.3.4]", "[::ffff:1.2.3.4]"},
		{"http://93.184.216.34/", "0x5d.184.216.34", "93.184.216.34"},
	} {
		dest, err := policy.ParseTarget(tt.target)
		require.NoError(t, err)
		assert.Equal(t, tt.want, hostField(&head{host: tt.host}, dest), "%s, Host: %s", tt.target, tt.host)
	}
}

func TestWantsWebSocket(t *testing.T) {
	ask := func(change func(*http.Request, *head)) bool {
		r := &http.Request{Method: "GET", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{
			"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"WebSocket"},
		}}
		h := &head{length: -1}
		change(r, h)
		return wantsWebSocket(r, h)
	}
	assert.True(t, ask(func(*http.Request, *head) {}))
	for name, change := range map[string]func(*http.Request, *head){
		"another method":  func(r *http.Request, _ *head) { r.Method = "POST" },
		"HTTP/1.0":        func(r *http.Request, _ *head) { r.ProtoMinor = 0 },
		"no upgrade":      func(r *http.Request, _ *head) { r.Header.Del("Upgrade") },
		"another upgrade": func(r *http.Request, _ *head) { r.Header.Set("Upgrade", "h2c") },
		"not in the hop":  func(r *http.Request, _ *head) { r.Header.Set("Connection", "close") },
		"a body":          func(_ *http.Request, h *head) { h.length = 1 },
		"a chunked body":  func(_ *http.Request, h *head) { h.chunked = true },
	} {
		assert.False(t, ask(change), name)
	}
}

func TestWantsHTML(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "text/*": false, "application/json": false,
		"text/html": true, "TEXT/HTML": true, "text/html;q=0.1": true,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": true,
		"application/json, text/html":                                     false,
		"application/json;q=0.5, text/html":                               true,
		"application/problem+json, text/html;q=0.9":                       false,
		"text/html;q=0":   false,
		"text/html;q=NaN": false,
		"text/html; level=1; q=0.3, application/json;q=0.2": true,
		",;,q=,text/html;;": true,
	} {
		assert.Equal(t, want, wantsHTML(accept), "Accept: %s", accept)
	}
}
