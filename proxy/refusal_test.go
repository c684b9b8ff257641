package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/policy"
)

// event stands for the id of a record, which is never the same twice.
const eventID = "01234567-89ab-7def-8123-456789abcdef"

// golden compares got with a file of testdata; UPDATE=1 writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if os.Getenv("UPDATE") == "1" {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "UPDATE=1 writes %s anew", path)
}

// aFlow is a request whose policy has decided.
func aFlow(t *testing.T, target string) *flow {
	t.Helper()
	f := &flow{profile: std}
	f.decision.Profile = policy.Profile{Name: std, Product: "agent"}
	f.decision.Rule = &policy.Rule{ID: "a-rule"}
	if target != "" {
		var err error
		f.dest, err = policy.ParseAuthority(target)
		require.NoError(t, err)
	}
	return f
}

// told are refusals of every class, with a detail where there is one.
var told = []struct {
	reason policy.Reason
	target string
	detail string
}{
	{policy.ReasonNotListed, "evil.test:443", ""},
	{policy.ReasonDenyRule, "evil.test:80", ""},
	{policy.ReasonDestPrivate, "[fd00::1]:443", ""},
	{policy.ReasonBadIdentity, "allowed.test:443", ""},
	{policy.ReasonLimit, "", ""},
	{policy.ReasonTooLarge, "", "the request head is larger than the limit"},
	{policy.ReasonTimeout, "", "the request head did not arrive in time"},
	{policy.ReasonMalformedTarget, "", "the target has a space"},
	{policy.ReasonBadScheme, "evil.test:443", "only http URLs are forwarded: use CONNECT for https"},
	{policy.ReasonBadVersion, "", ""},
	{policy.ReasonDNSError, "allowed.test:443", ""},
	{policy.ReasonDNSTimeout, "allowed.test:443", ""},
	{policy.ReasonUpstreamRefused, "allowed.test:80", ""},
	{policy.ReasonAuditUnavailable, "allowed.test:80", ""},
	{policy.ReasonInternal, "allowed.test:80", ""},
	{policy.ReasonShutdown, "allowed.test:80", ""},
	{policy.ReasonIdleTimeout, "allowed.test:80", ""},
}

func TestRefusalGolden(t *testing.T) {
	for _, detail := range []Detail{DetailNone, DetailReason, DetailRule} {
		t.Run(string(detail), func(t *testing.T) {
			s := &Server{cfg: Config{Detail: detail}.withDefaults()}
			var all strings.Builder
			for _, tt := range told {
				event := eventID
				if tt.reason == policy.ReasonAuditUnavailable {
					event = ""
				}
				r := s.refuse(aFlow(t, tt.target), tt.reason, tt.detail, event)
				all.WriteString("=== " + string(tt.reason) + "\n" + strings.ReplaceAll(string(r.wire("CONNECT")), "\r\n", "\n"))
			}
			golden(t, "refusal-"+string(detail), all.String())
		})
	}
}

func TestRefusalHTMLGolden(t *testing.T) {
	s := &Server{cfg: Config{}.withDefaults()}
	r := s.refuse(aFlow(t, "evil.test:80"), policy.ReasonNotListed, "", eventID)
	r.preferHTML("text/html")
	golden(t, "refusal-html", strings.ReplaceAll(string(r.wire("GET")), "\r\n", "\n"))
}

// Whatever the reason: the answer is one that a client can read, says what is
// so, and names neither the rule nor the allowlist unless told to.
func TestRefusalOfEveryReason(t *testing.T) {
	for _, detail := range []Detail{DetailNone, DetailReason, DetailRule} {
		s := &Server{cfg: Config{Detail: detail}.withDefaults()}
		for _, info := range policy.Reasons() {
			if info.Class == policy.ClassAllow {
				continue
			}
			t.Run(string(detail)+" "+string(info.Reason), func(t *testing.T) {
				ref := s.refuse(aFlow(t, "evil.test:443"), info.Reason, "", eventID)
				r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(ref.wire("CONNECT"))), nil)
				require.NoError(t, err)
				body, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				assert.GreaterOrEqual(t, r.StatusCode, 400)
				assert.True(t, r.Close)
				assert.Equal(t, int64(len(body)), r.ContentLength)
				var p problem
				require.NoError(t, json.Unmarshal(body, &p))
				assert.Equal(t, r.StatusCode, p.Status)
				assert.Equal(t, eventID, p.Instance)
				assert.Equal(t, detail == DetailRule, p.Rule != "")
				assert.Regexp(t, `^sluicegate; error=[a-z_]+(; details="[a-z_]+")?$`, r.Header.Get("Proxy-Status"))
				verdict := info.Class == policy.ClassDeny && !ofGate(info)
				assert.Equal(t, verdict, strings.Contains(p.Detail, "not an outage"), p.Detail)
				if verdict && detail == DetailNone {
					assert.Empty(t, p.Reason)
					assert.NotContains(t, string(ref.wire("")), string(info.Reason))
					assert.NotContains(t, p.Detail, info.Meaning)
				} else {
					assert.Equal(t, string(info.Reason), p.Reason)
				}
				if info.Class == policy.ClassDeny {
					assert.Regexp(t, `^blocked-by-[a-z-]+$`, r.Header.Get("X-Proxy-Error"))
				} else {
					assert.Empty(t, r.Header.Get("X-Proxy-Error"))
				}
			})
		}
	}
}

// Foreign text in an answer is escaped, whatever form it takes.
func TestRefusalEscapes(t *testing.T) {
	s := &Server{cfg: Config{}.withDefaults()}
	f := aFlow(t, "evil.test:80")
	f.profile = "<script>\"&\r\nX: y"
	r := s.refuse(f, policy.ReasonNotListed, "", eventID)
	assert.NotContains(t, string(r.wire("GET")), "<script>")
	assert.NotContains(t, string(r.wire("GET")), "\r\nX: y")
	r.preferHTML("text/html")
	assert.NotContains(t, string(r.body), "<script>")
}

// A HEAD is answered without the body, but with its length.
func TestRefusalOfHead(t *testing.T) {
	s := &Server{cfg: Config{}.withDefaults()}
	wire := s.refuse(aFlow(t, ""), policy.ReasonBadScheme, "", eventID).wire("HEAD")
	assert.True(t, bytes.HasSuffix(wire, []byte("\r\n\r\n")))
	assert.NotContains(t, string(wire), "Content-Length: 0")
}
