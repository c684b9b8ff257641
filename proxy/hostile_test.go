package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// R-A06: whatever a client sends, each request leaves one clean line in the real
// log.
func TestHostileBytesInRecords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := audit.Open(t.Context(), audit.Options{File: file, Sync: time.Hour})
	require.NoError(t, err)
	var operator bytes.Buffer
	w := newWorld(t, func(c *Config) {
		c.Recorder = log
		c.Logger = slog.New(slog.NewTextHandler(&operator, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	hostile := []string{
		"CONNECT a\"},{\"decision\":\"allow\"\n{:443 HTTP/1.1\r\n\r\n",
		"CONNECT \x1b[2J\x1b]0;pwned\x07.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT evil.test:443\\u000a HTTP/1.1\r\n\r\n",
		"CONNECT \xff\xfe\xc3.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT \u202eevil.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT " + strings.Repeat("a", 5000) + ":443 HTTP/1.1\r\n\r\n",
		"CONNECT " + strings.Repeat("\x01", 5000) + ":443 HTTP/1.1\r\n\r\n",
		"GET http://evil.test/%0a{\"event\":\"egress.opened\"} HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"GET http://evil.test/\x00\x1b[31m HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"G\"ET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"\x16\x03\x01\x00\x05hello",
		"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nUser-Agent: a\tb\x1b\r\n\r\n",
	}
	for _, s := range hostile {
		c := w.dial(std)
		c.send(s)
		require.NoError(t, c.CloseWrite())
		assert.NotContains(t, c.rest(), "\x1b")
		require.NoError(t, c.Close())
	}
	w.finish()
	require.NoError(t, log.Close(t.Context()))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	got := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	assert.Len(t, got, len(hostile))
	for _, line := range got {
		var e audit.Event
		require.NoError(t, json.Unmarshal(line, &e), "%s", line)
		assert.Equal(t, audit.EgressDenied, e.Event)
		assert.LessOrEqual(t, len(line), audit.MaxRecord)
		for _, b := range append(line, operator.Bytes()...) {
			if b != '\n' && (b < ' ' || b > '~') {
				t.Fatalf("byte %#x in %q", b, line)
			}
		}
	}
	assert.NotContains(t, operator.String(), "pwned")
}

// R-A07: no credentials, cookies or query strings reach the log, at any level,
// or the answer.
func TestSecretsStayOut(t *testing.T) {
	fields := "Host: evil.test\r\nAuthorization: Bearer SECRET\r\nCookie: s=SECRET\r\nProxy-Authorization: Basic SECRET\r\n\r\n"
	for name, request := range map[string]string{
		"denied":            "GET http://evil.test/SECRET?token=SECRET HTTP/1.1\r\n" + fields,
		"credentials":       "GET http://u:SECRET@evil.test/p?token=SECRET HTTP/1.1\r\n" + fields,
		"credentials, long": "GET http://u:SEC/SECRET@evil.test/p HTTP/1.1\r\n" + fields,
		"connect":           "CONNECT u:SECRET@evil.test:443 HTTP/1.1\r\n" + fields,
		"connect with path": "CONNECT evil.test:443/SECRET HTTP/1.1\r\n" + fields,
		"scheme":            "GET u:SECRET@x://evil.test/ HTTP/1.1\r\n" + fields,
		"bare line feed":    "CONNECT evil.test:443 HTTP/1.1\n" + fields,
		"no version":        "GET evil.test\nCookie: SECRET\r\n" + fields,
		"allowed":           "GET http://allowed.test/SECRET?SECRET HTTP/1.1\r\n" + fields,
		"unreachable":       "GET http://other.test/SECRET?SECRET HTTP/1.1\r\n" + fields,
		"upgrade":           strings.Replace(webSocketTo("allowed.test"), "/ws", "/SECRET?SECRET", 1),
		"https":             "GET https://u:SECRET@evil.test/SECRET HTTP/1.1\r\n" + fields,
		"breaks off":        "GET http://evil.test/SECRET HTTP/1.1\r\nCookie: SECRET",
		"bad field":         "GET http://evil.test/SECRET HTTP/1.1\r\nCookie SECRET\r\n" + fields,
		"bad chunk":         "POST http://allowed.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + strings.Replace(fields, "evil.test", "allowed.test", 1) + "SECRET\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var operator bytes.Buffer
			w := newWorld(t, func(c *Config) {
				c.Logger = slog.New(slog.NewTextHandler(&operator, &slog.HandlerOptions{Level: slog.LevelDebug}))
			})
			w.net.at(otherIP+":80", refuse)
			w.site(allowedIP+":80", func(string) string { return ok("hi") })
			c := w.dial(std)
			c.send(request)
			if name == "breaks off" {
				require.NoError(t, c.CloseWrite())
			}
			assert.NotContains(t, c.head(), "SECRET")
			_ = c.CloseWrite()
			rest, _ := io.ReadAll(c.br)
			assert.NotContains(t, string(rest), "SECRET")
			w.finish()
			assert.Len(t, w.rec.Events(), 1)
			all, err := json.Marshal(w.rec.Events())
			require.NoError(t, err)
			assert.NotContains(t, string(all), "SECRET")
			assert.NotContains(t, operator.String(), "SECRET")
		})
	}
}

// R-P20, R-F01, R-P08, R-P32 and other things that are no request for a proxy.
func TestNoProxyRequest(t *testing.T) {
	for name, tt := range map[string]struct {
		in     string
		status int
		reason string
	}{
		"R-P20 preface":            {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", 505, "bad_version"},
		"R-F01 origin form":        {"GET /status HTTP/1.1\r\nHost: evil.test\r\n\r\n", 400, "not_proxy_request"},
		"R-F01 own address":        {"GET / HTTP/1.1\r\nHost: 127.0.0.1:18081\r\nOrigin: http://evil.test\r\n\r\n", 400, "not_proxy_request"},
		"R-P08 IPv6 unbracketed":   {connectTo("2001:db8::1:443"), 400, "malformed_authority"},
		"R-P32 no port":            {connectTo("allowed.test"), 400, "malformed_authority"},
		"R-P32 port 0":             {connectTo("allowed.test:0"), 400, "bad_port"},
		"R-P32 port 65536":         {connectTo("allowed.test:65536"), 400, "bad_port"},
		"R-P32 port and more":      {connectTo("allowed.test:443x"), 400, "bad_port"},
		"R-P32 port -1":            {connectTo("allowed.test:-1"), 400, "bad_port"},
		"R-P32 no host":            {connectTo(":443"), 400, "malformed_authority"},
		"TLS":                      {"\x16\x03\x01\x00\x05hello", 400, "malformed"},
		"options of the gate":      {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400, "not_proxy_request"},
		"HTTP/0.9":                 {"GET http://allowed.test/\r\n\r\n", 505, "bad_version"},
		"R-P30 length and chunked": {"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX", 400, "bad_framing"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.dial(any_)
			c.send(tt.in)
			r := c.want(tt.status, "")
			assert.True(t, r.Close)
			assert.Empty(t, c.rest())
			w.finish()
			e := w.only(audit.EgressDenied)
			assert.Equal(t, tt.reason, e.Reason)
			assert.Equal(t, "error", e.Decision)
			assert.Equal(t, "listener", e.Stage)
			w.wantQueries()
			w.wantDials()
		})
	}
}
