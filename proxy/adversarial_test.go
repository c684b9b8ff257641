package proxy

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// adversarialCase is one line of testdata/adversarial.jsonl: the classes of the
// shared catalogue that concern this package.
type adversarialCase struct {
	ID, Class, Surface, Input, Context, Expect, Code, Reason string
	Kind                                                     string `json:"input_kind"`
}

func adversarialCases(t *testing.T) []adversarialCase {
	t.Helper()
	f, err := os.Open("testdata/adversarial.jsonl")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	var out []adversarialCase
	for s := bufio.NewScanner(f); s.Scan(); {
		var c adversarialCase
		require.NoError(t, json.Unmarshal(s.Bytes(), &c))
		out = append(out, c)
	}
	require.NotEmpty(t, out)
	return out
}

// otherReason lists the cases whose record has another reason than the catalogue
// proposes, and why.
var otherReason = map[string]string{
	"http-smuggling-008": "bad_header: no field value may hold a vertical tab, whatever the field",
}

// served lists the cases of which a first request is served before the one that
// the case is about.
var served = map[string]bool{"http-smuggling-037": true, "hop-by-hop-upgrade-007": true}

// elsewhere names the test of each case that the generic driver can't run.
var elsewhere = map[string]string{
	"connect-authority-031":  "TestConnectEarlyBytes",
	"http-smuggling-039":     "TestKeepAlive",
	"http-smuggling-041":     "TestOriginSendsTooMuch",
	"http-smuggling-042":     "TestPoolIsPerProfile",
	"http-smuggling-043":     "TestInterimResponses",
	"hop-by-hop-upgrade-008": "TestWebSocket",
	"hop-by-hop-upgrade-010": "TestExpect",
	"hop-by-hop-upgrade-011": "TestLargeHead",
	"hop-by-hop-upgrade-012": "TestLargeHead",
	"hop-by-hop-upgrade-016": "TestMalformedResponse",
}

func TestAdversarial(t *testing.T) {
	for _, tt := range adversarialCases(t) {
		if tt.Surface == "socks5" || tt.Surface == "tls" {
			continue // TestAdversarialSOCKS, TestAdversarialTLS
		}
		if _, ok := elsewhere[tt.ID]; ok || tt.Kind != "text" {
			assert.True(t, ok, "no test for %s", tt.ID)
			continue
		}
		t.Run(tt.ID, func(t *testing.T) { runAdversarial(t, tt) })
	}
}

func runAdversarial(t *testing.T, tt adversarialCase) {
	w := newWorld(t)
	web := w.site(allowedIP+":80", func(string) string { return ok("hi") })
	w.origin(allowedIP+":443", echo)
	c := w.dial(map[string]string{"std": std, "any": any_}[tt.Context])
	_, _ = io.WriteString(c, tt.Input)

	if tt.Expect == "allow" {
		wantAllowed(t, c, tt)
	} else {
		if served[tt.ID] {
			c.want(200, "hi")
		}
		wantRefusal(t, c, tt)
	}
	w.finish()
	records := w.rec.Events()
	if tt.Expect == "allow" {
		for _, e := range records {
			assert.Equal(t, "allow", e.Decision)
			assert.Equal(t, "allowed.test", e.Dest)
		}
		return
	}
	wantServed := 0
	if served[tt.ID] {
		require.Len(t, records, 2, "%v", w.rec.briefs())
		records, wantServed = records[1:], 1
	} else {
		w.wantQueries()
		w.wantDials()
	}
	require.Len(t, records, 1, "%v", w.rec.briefs())
	assert.Len(t, web.requests(), wantServed, "requests at the origin")
	e := records[0]
	want := tt.Code
	if other, ok := otherReason[tt.ID]; ok {
		want, _, _ = strings.Cut(other, ":")
	}
	assert.Equal(t, audit.EgressDenied, e.Event)
	assert.Equal(t, want, e.Reason, tt.Reason)
	assert.Equal(t, tt.Expect, e.Decision)
}

func wantAllowed(t *testing.T, c *client, tt adversarialCase) {
	t.Helper()
	if !strings.HasPrefix(tt.Input, "CONNECT ") {
		c.want(200, "hi")
		return
	}
	require.Equal(t, established, c.head())
	c.send("x")
	assert.Equal(t, "x", c.read(1))
	require.NoError(t, c.CloseWrite())
	c.rest()
}

// wantRefusal wants the refusal and, where the gate can't know what follows, the
// end of the connection.
func wantRefusal(t *testing.T, c *client, tt adversarialCase) {
	t.Helper()
	r, _ := c.answer(http.MethodGet)
	switch tt.Expect {
	case "deny":
		assert.Equal(t, 403, r.StatusCode, tt.Reason)
	default:
		assert.Contains(t, []int{400, 431, 505}, r.StatusCode, tt.Reason)
	}
	if tt.Expect == "error" || strings.HasPrefix(tt.Input, "CONNECT ") {
		assert.True(t, r.Close, "the answer announces the end")
		assert.Empty(t, c.rest())
	}
}
