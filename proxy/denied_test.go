package proxy

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/policy"
)

// R-P13: a denied destination is refused at once on both surfaces, without a
// look-up and without a dial.
func TestDenied(t *testing.T) {
	const lan = "dest_private"
	for name, tt := range map[string]struct {
		request, record string
		status          int
		profile         string
	}{
		"connect":              {connectTo("evil.test:443"), "egress.denied deny not_listed evil.test:443", 403, std},
		"get":                  {get("http://evil.test/"), "egress.denied deny not_listed evil.test:80", 403, std},
		"connect port":         {connectTo("allowed.test:22"), "egress.denied deny port_not_listed allowed.test:22 [allowed]", 403, std},
		"get port":             {get("http://allowed.test:8080/"), "egress.denied deny port_not_listed allowed.test:8080 [allowed]", 403, std},
		"connect deny rule":    {connectTo("blocked.wild.test:443"), "egress.denied deny deny_rule blocked.wild.test:443 [blocked]", 403, std},
		"get deny rule":        {get("http://blocked.wild.test/"), "egress.denied deny deny_rule blocked.wild.test:80 [blocked]", 403, std},
		"connect literal":      {connectTo("93.184.216.34:443"), "egress.denied deny ip_literal_not_listed 93.184.216.34:443", 403, std},
		"connect private":      {connectTo("10.0.0.1:443"), "egress.denied deny " + lan + " 10.0.0.1:443", 403, any_},
		"connect metadata":     {connectTo("169.254.169.254:80"), "egress.denied deny dest_metadata 169.254.169.254:80", 403, any_},
		"get mapped metadata":  {get("http://[::ffff:169.254.169.254]/"), "egress.denied deny dest_metadata 169.254.169.254:80", 403, any_},
		"connect local name":   {connectTo("localhost:443"), "egress.denied deny local_name localhost:443", 403, any_},
		"get metadata name":    {get("http://metadata.google.internal/"), "egress.denied deny dest_metadata metadata.google.internal:80", 403, any_},
		"clear text to TLS":    {get("http://ports.test:443/"), "egress.denied deny protocol_mismatch ports.test:443 [ports]", 403, std},
		"R-P09 loopback, IPv6": {connectTo("[::1]:8443"), "egress.denied deny dest_private [::1]:8443", 403, std},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.dial(tt.profile)
			c.send(tt.request)
			r, body := c.answer(http.MethodGet)
			assert.Equal(t, tt.status, r.StatusCode)
			e := w.rec.Events()[0]
			assertProblem(t, r, body, e)
			assert.Equal(t, tt.status, e.HTTPStatus)
			assert.Equal(t, "policy", e.Stage)
			if strings.HasPrefix(tt.request, "CONNECT") {
				assert.Equal(t, "403 Blocked by egress policy ("+e.Reason+") "+e.ID, r.Status)
				assert.Empty(t, c.rest(), "closed after the answer")
			}
			w.wantRefused(tt.record)
		})
	}
}

// assertProblem holds a refusal against its record.
func assertProblem(t *testing.T, r *http.Response, body string, e audit.Event) {
	t.Helper()
	var p problem
	require.NoError(t, json.Unmarshal([]byte(body), &p), "%s", body)
	assert.Equal(t, "application/problem+json", r.Header.Get("Content-Type"))
	assert.Equal(t, int64(len(body)), r.ContentLength)
	assert.Equal(t, "no-store", r.Header.Get("Cache-Control"))
	assert.Equal(t, e.ID, r.Header.Get("X-Sluicegate-Event"))
	assert.Equal(t, e.ID, p.Instance)
	assert.Equal(t, e.Reason, p.Reason)
	assert.Equal(t, e.Profile, p.Profile)
	assert.Equal(t, e.Dest, p.Host)
	assert.Equal(t, e.Port, p.Port)
	assert.Equal(t, r.StatusCode, p.Status)
	assert.False(t, p.Retryable)
	assert.Contains(t, r.Header.Get("Proxy-Status"), `details="`+e.Reason+`"`)
	assert.Contains(t, p.Detail, "sluicegate explain "+e.ID)
	assert.Contains(t, p.Detail, "not an outage")
	assert.NotContains(t, body, "allowed.test,", "the allowlist is not disclosed")
}

// Whoever owns the client's socket must be entitled.
func TestDeniedForeignUser(t *testing.T) {
	for name, request := range map[string]string{"connect": connectTo("allowed.test:443"), "get": get("http://allowed.test/")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peer.Store(&Peer{UID: 1001, UIDKnown: true, User: "guest"})
			c := w.dial(std)
			c.send(request)
			c.want(403, "")
			e := w.only(audit.EgressDenied)
			assert.Equal(t, uint32(1001), *e.Client.UID)
			assert.Equal(t, "guest", e.User)
			assert.Equal(t, "verified", e.Client.Attribution)
			w.wantRefused("egress.denied deny bad_identity allowed.test:" + map[string]string{"connect": "443", "get": "80"}[name])
		})
	}
}

// No policy and no profile deny everything.
func TestDeniedWithoutPolicy(t *testing.T) {
	for name, tt := range map[string]struct {
		load   func(*world)
		reason string
	}{
		"none":       {func(w *world) { w.snapshot.Store((*policy.Snapshot)(nil)) }, "no_policy"},
		"no profile": {func(w *world) { w.load("version: 1\nproduct: agent\n") }, "unknown_profile"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.load(w)
			c := w.dial(std)
			c.send(get("http://allowed.test/"))
			c.want(403, "")
			c.send(connectTo("allowed.test:443"))
			c.want(403, "")
			e := w.rec.Events()[0]
			assert.Equal(t, "unknown", e.Product)
			assert.Equal(t, std, e.Profile)
			w.wantRecords("egress.denied deny "+tt.reason+" allowed.test:80", "egress.denied deny "+tt.reason+" allowed.test:443")
			w.wantQueries()
			w.wantDials()
		})
	}
}

// A person at a browser gets a page, everybody else JSON.
func TestDeniedHTML(t *testing.T) {
	w := newWorld(t)
	c := w.dial(std)
	c.send("GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nAccept: text/html,*/*;q=0.8\r\n\r\n")
	r, body := c.answer(http.MethodGet)
	assert.Equal(t, "text/html; charset=utf-8", r.Header.Get("Content-Type"))
	assert.Equal(t, "default-src 'none'", r.Header.Get("Content-Security-Policy"))
	assert.Contains(t, body, "<h1>Blocked by egress policy</h1>")
	assert.Contains(t, body, w.only(audit.EgressDenied).ID)
}

// HEAD is answered without a body, on a connection that stays.
func TestDeniedHead(t *testing.T) {
	w := newWorld(t)
	c := w.dial(std)
	c.send("HEAD http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	r, body := c.answer(http.MethodHead)
	assert.Equal(t, 403, r.StatusCode)
	assert.Positive(t, r.ContentLength)
	assert.Empty(t, body)
	c.send("HEAD https://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	r, body = c.answer(http.MethodHead)
	assert.Equal(t, 400, r.StatusCode)
	assert.Empty(t, body)
	assert.Empty(t, c.rest())
	w.wantRecords("egress.denied deny not_listed evil.test:80", "egress.denied error bad_scheme evil.test:443")
}
