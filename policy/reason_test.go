package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// declaredReasons are the constants of reason.go, name to value, taken from the
// source so that none can be forgotten.
func declaredReasons(t *testing.T) map[string]policy.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	found := map[string]policy.Reason{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Reason" {
			return true
		}
		for i, name := range spec.Names {
			lit, ok := spec.Values[i].(*ast.BasicLit)
			require.True(t, ok, name.Name)
			value, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			found[name.Name] = policy.Reason(value)
		}
		return true
	})
	require.Greater(t, len(found), 50)
	return found
}

// Every reason has one row, and every row is of a reason.
func TestEveryReasonHasARow(t *testing.T) {
	declared := map[policy.Reason]string{}
	for name, reason := range declaredReasons(t) {
		assert.Regexp(t, "^[a-z]+(_[a-z]+)*$", string(reason), name)
		assert.NotContains(t, declared, reason, "%s and %s are the same", name, declared[reason])
		declared[reason] = name
		spelt := strings.ToLower(strings.TrimPrefix(name, "Reason"))
		assert.Equal(t, spelt, strings.ReplaceAll(string(reason), "_", ""), "the name of the constant is another word")
		assert.Equal(t, reason, reason.Info().Reason, "%s has no row", name)
	}
	seen := map[policy.Reason]bool{}
	for _, row := range policy.Reasons() {
		assert.Contains(t, declared, row.Reason)
		assert.False(t, seen[row.Reason], "%s has two rows", row.Reason)
		seen[row.Reason] = true
	}
	assert.Len(t, seen, len(declared))
}

// The strings are an interface: this list may grow, nothing in it may change.
func TestReasonsAreStable(t *testing.T) {
	const shipped = `not_listed port_not_listed method_not_listed path_not_listed ip_literal_not_listed deny_rule rule_expired
mode_blocked no_policy unknown_profile bad_identity revoked dest_private dest_metadata dest_self local_name loop sni_mismatch
sni_missing sni_invalid ech_present protocol_mismatch tls_malformed qtype_not_allowed qclass_not_allowed special_use canary_name
cname_not_allowed tunnel_shape tunnel_budget limit too_large timeout malformed_host ambiguous_ip malformed_authority
malformed_target bad_port bad_scheme bad_method bad_version bad_header bad_framing not_proxy_request unsupported malformed bad_auth
dns_error dns_timeout upstream_refused upstream_timeout upstream_reset upstream_tls parent_proxy audit_unavailable internal
client_closed upstream_closed idle_timeout half_closed_timeout shutdown rule exception open_network observe`
	for _, word := range strings.Fields(shipped) {
		r := policy.Reason(word)
		assert.Equal(t, r, r.Info().Reason)
	}
}

// Texts are whole sentences of one line, and no two rows mean the same.
func TestReasonTexts(t *testing.T) {
	meanings := map[string]policy.Reason{}
	for _, row := range policy.Reasons() {
		for kind, text := range map[string]string{"meaning": row.Meaning, "cause": row.Cause, "mend": row.Mend} {
			assert.NotEmpty(t, text, "%s: %s", row.Reason, kind)
			assert.True(t, strings.HasSuffix(text, "."), "%s: %s: %q", row.Reason, kind, text)
			assert.NotContains(t, text, "\n")
			assert.NotContains(t, text, "|", "a table would break")
		}
		assert.NotContains(t, meanings, row.Meaning, "%s", row.Reason)
		meanings[row.Meaning] = row.Reason
	}
}

// What each class is on the wire (refusals.md).
func TestReasonMappings(t *testing.T) {
	http := map[policy.Reason]int{
		policy.ReasonTooLarge: 431, policy.ReasonTimeout: 408, policy.ReasonLimit: 503,
		policy.ReasonBadVersion: 505,
		policy.ReasonDNSTimeout: 504, policy.ReasonUpstreamTimeout: 504, policy.ReasonInternal: 500, policy.ReasonAuditUnavailable: 503,
	}
	socks := map[policy.Reason][]int{
		policy.ReasonDNSError: {4}, policy.ReasonDNSTimeout: {4}, policy.ReasonUpstreamRefused: {5}, policy.ReasonUpstreamTimeout: {6},
	}
	byClass := map[policy.Class]struct {
		http  int
		socks []int
	}{
		policy.ClassDeny: {403, []int{2}}, policy.ClassMalformed: {400, []int{1, 7, 8}}, policy.ClassUpstream: {502, []int{1}},
		policy.ClassClose: {0, []int{0}}, policy.ClassAllow: {0, []int{0}},
	}
	rcodes := []string{"-", "NXDOMAIN", "NODATA", "REFUSED", "SERVFAIL", "FORMERR", "NOTIMP", "DROP"}
	words := []string{"blocked-by-allowlist", "blocked-by-denylist", "blocked-by-method-policy", "blocked-by-policy"}
	for _, row := range policy.Reasons() {
		t.Run(string(row.Reason), func(t *testing.T) {
			want := byClass[row.Class]
			if status, ok := http[row.Reason]; ok {
				want.http = status
			}
			if reply, ok := socks[row.Reason]; ok {
				want.socks = reply
			}
			assert.Equal(t, want.http, row.HTTP)
			assert.Contains(t, want.socks, row.SOCKS)
			assert.Contains(t, rcodes, row.DNS.RCode)
			if want.http == 0 { // never sent
				assert.Empty(t, row.ProxyError)
				assert.Empty(t, row.ProxyStatus)
				assert.Equal(t, policy.DNSMapping{RCode: "-"}, row.DNS)
				return
			}
			assert.Contains(t, words, row.ProxyError)
			assert.Regexp(t, "^[a-z]+(_[a-z]+)*$", row.ProxyStatus)
			if row.DNS.RCode == "-" || row.DNS.RCode == "FORMERR" || row.DNS.RCode == "DROP" {
				assert.Zero(t, row.DNS.EDE)
			}
			if row.Class == policy.ClassDeny && (row.DNS.RCode == "NXDOMAIN" || row.DNS.RCode == "NODATA") {
				assert.Contains(t, []int{14, 15, 18}, row.DNS.EDE)
			}
		})
	}
	for word, reasons := range map[string][]policy.Reason{
		"blocked-by-allowlist":     {policy.ReasonNotListed, policy.ReasonPortNotListed, policy.ReasonDestPrivate, policy.ReasonDestMetadata, policy.ReasonDestSelf, policy.ReasonLocalName},
		"blocked-by-denylist":      {policy.ReasonDenyRule},
		"blocked-by-method-policy": {policy.ReasonMethodNotListed, policy.ReasonPathNotListed, policy.ReasonBadScheme},
	} {
		for _, r := range reasons {
			assert.Equal(t, word, r.Info().ProxyError, r)
		}
	}
}

// A reason that nobody knows is answered as a fault of the gate, never as
// something that was allowed.
func TestUnknownReason(t *testing.T) {
	for _, r := range []policy.Reason{"", "no_such_reason", "NOT_LISTED"} {
		assert.Equal(t, policy.ReasonInternal, r.Info().Reason)
		assert.Equal(t, 500, r.Info().HTTP)
	}
	var zero policy.Class
	assert.Equal(t, policy.ClassDeny, zero)
	assert.Equal(t, "deny", policy.Class(99).String())
	names := map[string]bool{}
	for _, c := range []policy.Class{policy.ClassDeny, policy.ClassMalformed, policy.ClassUpstream, policy.ClassClose, policy.ClassAllow} {
		names[c.String()] = true
	}
	assert.Len(t, names, 5)
	rows := policy.Reasons()
	rows[0].Meaning = "changed"
	assert.NotEqual(t, "changed", policy.Reasons()[0].Meaning, "the table was handed out")
}
