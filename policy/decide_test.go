package policy_test

import (
	"net/netip"
	"strings"
	"sync"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each step of the package documentation has something to say about the same
// destination, and each case takes away the strongest that is left. Step 1, a
// malformed destination, never reaches Decide.
func TestPrecedence(t *testing.T) {
	const question = "connect app.internal:443 10.0.0.1"
	profile := func(network string, rules ...string) string {
		return oneProfile("network: " + network + "\nmode: observe\n" + strings.Join(rules, "\n"))
	}
	global := "version: 1\nglobal: {deny: [{host: app.internal, id: global-deny}]}\n"
	deny := "deny: [{host: app.internal, id: product-deny}]"
	grant := "allow: [{host: app.internal, resolves_to: [10.0.0.0/8], id: grant}]"
	noGrant := "allow: [{host: app.internal, id: no-grant}]"
	for i, tt := range []struct {
		name   string
		change func(*policy.Request)
		files  []string
		want   string
		rule   string
		layer  policy.Layer
	}{
		{"no policy", nil, nil, "deny no_policy", "", policy.LayerBuiltin},
		{"unknown profile", func(r *policy.Request) { r.Profile, r.Entitled = "test/q", false }, []string{profile("blocked", grant, deny), global}, "deny unknown_profile", "", policy.LayerBuiltin},
		{"no profile", func(r *policy.Request) { r.Profile = "" }, []string{profile("blocked", grant, deny), global}, "deny unknown_profile", "", policy.LayerBuiltin},
		{"user not entitled", func(r *policy.Request) { r.Entitled = false }, []string{profile("blocked", grant, deny), global}, "deny bad_identity", "", policy.LayerBuiltin},
		{"zero destination", func(r *policy.Request) { r.Destination = policy.Destination{} }, []string{profile("blocked", grant, deny), global}, "deny malformed", "", policy.LayerBuiltin},
		{"network blocked", nil, []string{profile("blocked", grant, deny), global}, "deny mode_blocked", "", policy.LayerProduct},
		{"guard, the name", nil, []string{profile("open", noGrant, deny), global}, "deny local_name", "", policy.LayerBuiltin},
		{"guard, the address", func(r *policy.Request) { r.Addrs = []netip.Addr{netip.MustParseAddr("169.254.169.254")} }, []string{profile("open", grant, deny), global}, "deny dest_metadata", "", policy.LayerBuiltin},
		{"global deny", nil, []string{profile("open", grant, deny), global}, "deny deny_rule", "global-deny", policy.LayerGlobal},
		{"product deny", nil, []string{profile("open", grant, deny)}, "deny deny_rule", "product-deny", policy.LayerProduct},
		{"allow", nil, []string{profile("open", grant)}, "allow rule", "grant", policy.LayerProduct},
		{"default of an open network", func(r *policy.Request) { *r = tunnel(t, "a.test:443") }, []string{profile("open", grant)}, "allow open_network", "", policy.LayerProduct},
		{"default, observed", func(r *policy.Request) { *r = tunnel(t, "a.test:443") }, []string{profile("allowlist", grant)}, "observe not_listed", "", policy.LayerProduct},
		{"default", func(r *policy.Request) { *r = tunnel(t, "a.test:443") }, []string{oneProfile("network: allowlist")}, "deny not_listed", "", policy.LayerProduct},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s *policy.Snapshot
			if tt.files != nil {
				s = compile(t, tt.files...)
			}
			r := ask(t, question)
			if tt.change != nil {
				tt.change(&r)
			}
			d := s.Decide(r)
			assert.Equal(t, tt.want, verdict(d), "step %d", i)
			assert.Equal(t, tt.rule, ruleID(d))
			assert.Equal(t, tt.layer, d.Layer)
		})
	}
}

// An empty policy, a missing list, only deny rules: nothing is allowed by
// absence.
func TestEmptyPoliciesDeny(t *testing.T) {
	for name, tt := range map[string]struct {
		texts []string
		want  string
	}{
		"no files":            {nil, "deny unknown_profile"},
		"only a group":        {[]string{githubGroup}, "deny unknown_profile"},
		"only a global file":  {[]string{"version: 1\nglobal: {deny: []}\n"}, "deny unknown_profile"},
		"product, no profile": {[]string{"version: 1\nproduct: test\n"}, "deny unknown_profile"},
		"empty profiles":      {[]string{"version: 1\nproduct: test\nprofiles: {}\n"}, "deny unknown_profile"},
		"another profile":     {[]string{"version: 1\nproduct: test\nprofiles: {q: {listen: {port: 1}}}\n"}, "deny unknown_profile"},
		"no lists":            {[]string{"version: 1\nproduct: test\nprofiles: {p: {listen: {port: 1}}}\n"}, "deny not_listed"},
		"empty allow":         {[]string{oneProfile("allow: []")}, "deny not_listed"},
		"empty everything":    {[]string{oneProfile("allow: []\ndeny: []\nuse: []")}, "deny not_listed"},
		"only deny":           {[]string{oneProfile("deny: [{host: b.test}]")}, "deny not_listed"},
		"an empty group":      {[]string{oneProfile("use: [g]"), "version: 1\ngroup: g\nhosts: []\n"}, "deny not_listed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := compile(t, tt.texts...)
			for _, r := range []policy.Request{tunnel(t, "a.test:443"), tunnel(t, "a.test:443", publicAddress), get(t, "http://a.test/")} {
				assert.Equal(t, tt.want, verdict(s.Decide(r)))
			}
			assert.Contains(t, verdict(s.Decide(tunnel(t, "1.1.1.1:443"))), "deny ")
		})
	}
}

func TestZeroValuesDeny(t *testing.T) {
	var d policy.Decision
	assert.False(t, d.Allowed())
	assert.False(t, d.Observed())
	assert.Equal(t, policy.ActionDeny, d.Action)
	var none *policy.Snapshot
	got := none.Decide(policy.Request{})
	assert.Equal(t, policy.Decision{Reason: policy.ReasonNoPolicy, Layer: policy.LayerBuiltin}, got)
	assert.Equal(t, "deny no_policy", verdict(none.Decide(tunnel(t, "a.test:443"))))
	for _, s := range []*policy.Snapshot{compile(t), compile(t, oneProfile("network: open")), {}} {
		assert.Equal(t, "deny unknown_profile", verdict(s.Decide(policy.Request{})))
		assert.Equal(t, "deny unknown_profile", verdict(s.Decide(policy.Request{Entitled: true})))
	}
	s := compile(t, oneProfile("network: open"))
	assert.Equal(t, "deny bad_identity", verdict(s.Decide(policy.Request{Profile: testProfile})))
	assert.Equal(t, "deny malformed", verdict(s.Decide(policy.Request{Profile: testProfile, Entitled: true})))
}

func TestProfiles(t *testing.T) {
	s := compile(t, githubGroup, `version: 1
product: claude-code
surface: desktop
profiles:
  commands: {mode: observe, observe_until: "2027-01-02T03:04:05Z", use: [github], allow: [{host: a.test}], deny: [{host: b.test}, {ip: 10.0.0.1}]}
  process: {network: blocked}
`, "version: 1\nproduct: test\nprofiles:\n  z: {listen: {port: 0}}\n  a: {listen: {port: 65535}, network: open}\n")
	var names []string
	for _, p := range s.Profiles() {
		names = append(names, p.Name)
		one, ok := s.Profile(p.Name)
		assert.True(t, ok)
		assert.Equal(t, p, one)
	}
	assert.Equal(t, []string{"claude-code/commands", "claude-code/process", "test/a", "test/z"}, names)
	p, _ := s.Profile("claude-code/commands")
	assert.Equal(t, "2027-01-02 03:04:05 +0000 UTC", p.ObserveUntil.String())
	assert.Equal(t, "claude-code", p.Product)
	assert.Equal(t, "desktop", p.Surface)
	assert.Equal(t, uint16(18082), p.Port)
	assert.Equal(t, policy.ModeObserve, p.Mode)
	assert.Equal(t, policy.NetworkAllowlist, p.Network)
	assert.Equal(t, 2, p.Allow)
	assert.Equal(t, 2, p.Deny)
	p, _ = s.Profile("claude-code/process")
	assert.Equal(t, uint16(18081), p.Port)
	assert.Equal(t, policy.ModeEnforce, p.Mode)
	p, _ = s.Profile("test/z")
	assert.Zero(t, p.Port)
	assert.Equal(t, "local", p.Surface)
	_, ok := s.Profile("test/none")
	assert.False(t, ok)
	var none *policy.Snapshot
	_, ok = none.Profile("test/a")
	assert.False(t, ok)
	assert.Empty(t, none.Profiles())
}

// Why finds the explanation of a rule by its id, whatever kind it is of.
func TestWhy(t *testing.T) {
	s := compile(t, githubGroup, oneProfile(`use: [github]
allow:
  - {host: a.test, id: host, why: the host}
  - {cidr: 10.0.0.0/8, id: net, why: the net}
deny: [{host: "*.b.test", id: deny, why: the deny}]`), "version: 1\nglobal: {deny: [{ip: 1.1.1.1, id: glob, why: the global}]}\n")
	for id, want := range map[string]string{
		"host": "the host", "net": "the net", "deny": "the deny", "glob": "the global", "github:**.github.com": "code", "none": "", "": "",
	} {
		assert.Equal(t, want, s.Why(testProfile, id), id)
	}
	assert.Equal(t, "the global", s.Why("test/none", "glob"))
	assert.Empty(t, s.Why("test/none", "host"))
	var none *policy.Snapshot
	assert.Empty(t, none.Why(testProfile, "host"))
}

// A snapshot is shared by all connections; the race detector looks on.
func TestDecideTogether(t *testing.T) {
	s := compile(t, githubGroup, oneProfile("use: [github]\nallow: [{host: \"*.a.test\"}]\ndeny: [{cidr: 9.0.0.0/8}]"))
	r := tunnel(t, "x.a.test:443", publicAddress)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				d := s.Decide(r)
				assert.Equal(t, policy.ReasonRule, d.Reason)
				s.Profiles()
			}
		})
	}
	wg.Wait()
	require.NotEmpty(t, s.Digest())
}
