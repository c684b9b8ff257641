package policy_test

import (
	"testing"
	"time"

	"sluicegate/policy"

	"github.com/stretchr/testify/require"
)

func compileOne(t *testing.T, text string) *policy.Snapshot {
	t.Helper()
	s, err := policy.Compile([]policy.File{{Name: "p.yaml", Data: []byte(text)}})
	require.NoError(t, err)
	return s
}

func askAt(t *testing.T, s *policy.Snapshot, target string, now time.Time) policy.Decision {
	t.Helper()
	d, err := policy.ParseHostPort(target, 443)
	require.NoError(t, err)
	return s.Decide(policy.Request{Profile: "claude-code/commands", Entitled: true, Destination: d, Proto: policy.ProtoConnect, Now: now})
}

func TestRulesExpire(t *testing.T) {
	s := compileOne(t, `
version: 1
product: claude-code
profiles:
  commands:
    allow:
      - {host: "**.example.com", expires: 2026-06-01, id: short}
      - {host: kept.example.com}
      - {ip: 8.8.8.8, expires: "2026-06-01T12:00:00Z"}
      - {ip: 10.0.0.1, ports: [443], expires: 2026-06-01}
    deny:
      - {host: bad.example.com, expires: 2026-05-01}
`)
	may, june := time.Date(2026, 5, 31, 23, 59, 59, 0, time.UTC), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		target string
		now    time.Time
		want   policy.Reason
	}{
		"before":                      {"a.example.com", may, policy.ReasonRule},
		"at the end":                  {"a.example.com", june, policy.ReasonRuleExpired},
		"time not known":              {"a.example.com", time.Time{}, policy.ReasonRuleExpired},
		"another rule still allows":   {"kept.example.com", june, policy.ReasonRule},
		"never listed":                {"other.example.net", june, policy.ReasonNotListed},
		"another port":                {"a.example.com:22", june, policy.ReasonNotListed},
		"address, before":             {"8.8.8.8", june, policy.ReasonRule},
		"address, after":              {"8.8.8.8", june.Add(12 * time.Hour), policy.ReasonRuleExpired},
		"private address, before":     {"10.0.0.1", may, policy.ReasonRule},
		"private address, after":      {"10.0.0.1", june, policy.ReasonDestPrivate},
		"deny rule, before its end":   {"bad.example.com", april, policy.ReasonDenyRule},
		"deny rule, after its end":    {"bad.example.com", may, policy.ReasonRule},
		"deny rule, time not known":   {"bad.example.com", time.Time{}, policy.ReasonDenyRule},
		"neighbour outside, wildcard": {"xexample.com", june, policy.ReasonNotListed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := askAt(t, s, c.target, c.now)
			require.Equal(t, c.want, d.Reason)
			require.Equal(t, c.want == policy.ReasonRule, d.Allowed())
			if c.want == policy.ReasonRuleExpired {
				require.NotNil(t, d.Rule)
			}
		})
	}

	require.Equal(t, time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), s.NextChange(april))
	require.Equal(t, june, s.NextChange(may))
	require.Equal(t, june.Add(12*time.Hour), s.NextChange(june))
	require.Zero(t, s.NextChange(june.Add(12*time.Hour)))
	require.Zero(t, (*policy.Snapshot)(nil).NextChange(may))
}

// TestExpiryMustBeATime: a time that can't be read must not mean for ever.
func TestExpiryMustBeATime(t *testing.T) {
	for _, bad := range []string{"soon", "''", "2026-13-01", "2026-01-01 10:00"} {
		_, err := policy.Compile([]policy.File{{Name: "p.yaml", Data: []byte(
			"version: 1\nproduct: claude-code\nprofiles: {commands: {allow: [{host: a.example.com, expires: " + bad + "}]}}\n")}})
		require.ErrorContains(t, err, "not a time", bad)
	}
}

func TestNextChangeSeesTheEndOfObserveMode(t *testing.T) {
	s := compileOne(t, "version: 1\nproduct: claude-code\nprofiles: {commands: {mode: observe, observe_until: 2026-07-01}}\n")
	require.Equal(t, time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC), s.NextChange(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)))
}

func TestDiffCountsRules(t *testing.T) {
	a := compileOne(t, "version: 1\nproduct: claude-code\nprofiles: {commands: {allow: [{host: a.example.com}, {host: '**.b.example.com'}]}}\n")
	b := compileOne(t, "version: 1\nproduct: claude-code\nprofiles: {commands: {allow: [{host: a.example.com, ports: [8443]}], deny: [{host: c.example.com}]}}\n")
	added, removed := policy.Diff(a, b)
	require.Equal(t, 2, added)
	require.Equal(t, 2, removed)
	added, removed = policy.Diff(nil, a)
	require.Equal(t, 2, added)
	require.Zero(t, removed)
	added, removed = policy.Diff(a, a)
	require.Zero(t, added+removed)
}
