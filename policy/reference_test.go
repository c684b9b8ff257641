package policy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// reference decides like Decide, in the order of the package documentation, by
// looking at every rule, with names as strings and addresses as prefixes. It
// returns a verdict; of the denials at the end it says only "deny default".
func (m model) reference(r policy.Request) string {
	name, literal := r.Destination.Name(), r.Destination.Addr()
	switch {
	case !r.Entitled:
		return "deny bad_identity"
	case m.network == policy.NetworkBlocked:
		return "deny mode_blocked"
	}
	// The guard.
	local := name == "nas" || strings.HasSuffix(name, ".internal")
	if name == "metadata.goog" {
		return "deny dest_metadata"
	}
	if local && !slices.ContainsFunc(m.allow, func(a modelRule) bool { return a.covers(r) && len(a.resolves) > 0 && a.portFits(r) }) {
		return "deny local_name"
	}
	judged := r.Addrs
	if literal.IsValid() {
		judged = append([]netip.Addr{literal}, r.Addrs...)
	}
	allPublic := true
	for i, a := range judged {
		a = a.Unmap()
		if literal.IsValid() && i > 0 {
			if a != literal {
				return "deny dest_private"
			}
			continue
		}
		reason, openable := m.classify(r.Local != nil, a)
		if reason == "" {
			continue
		}
		allPublic = false
		granted := openable && slices.ContainsFunc(m.allow, func(rule modelRule) bool {
			if literal.IsValid() {
				return rule.net != "" && holds(rule.net, a) && rule.portFits(r)
			}
			return rule.covers(r) && rule.portFits(r) && slices.ContainsFunc(rule.resolves, func(n string) bool { return holds(n, a) })
		})
		if !granted {
			return "deny " + string(reason)
		}
	}
	// Deny rules.
	for _, rule := range slices.Concat(m.global, m.deny) {
		if rule.denies(r) {
			return "deny deny_rule"
		}
	}
	// Allow rules, then the default.
	clear443 := r.Proto == policy.ProtoHTTP && r.Destination.Port() == 443
	for _, rule := range m.allow {
		if rule.covers(r) && rule.portFits(r) && !clear443 && (!local || len(rule.resolves) > 0) && (literal.IsValid() || rule.mayResolve(r.Addrs)) {
			return "allow rule"
		}
	}
	port := r.Destination.Port()
	openPort := r.Proto == policy.ProtoDNS || port == 80 || port == 443 && !clear443
	if m.network == policy.NetworkOpen && openPort && allPublic && !local {
		return "allow open_network"
	}
	observing := m.observe && (m.until.IsZero() || r.Now.Before(m.until))
	if observing && allPublic && !local {
		return "observe default"
	}
	return "deny default"
}

// classify knows the addresses of the model's world.
func (m model) classify(machine bool, a netip.Addr) (reason policy.Reason, openable bool) {
	s := a.String()
	switch {
	case s == "169.254.169.254", s == "192.168.169.254", s == "fd12::a9fe:a9fe":
		return policy.ReasonDestMetadata, false
	case machine && (s == "192.168.0.20" || s == "93.184.216.35"):
		return policy.ReasonDestSelf, false
	case s == "127.0.0.1", s == "fe80::1", strings.Contains(s, "%"):
		return policy.ReasonDestPrivate, false
	case strings.HasPrefix(s, "10."), strings.HasPrefix(s, "192.168."), strings.HasPrefix(s, "fd12:"):
		return policy.ReasonDestPrivate, true
	default:
		return "", false
	}
}

func holds(net string, a netip.Addr) bool { return netip.MustParsePrefix(net).Contains(a.Unmap()) }

func hostCovers(pattern, name string) bool {
	if base, ok := strings.CutPrefix(pattern, "**."); ok {
		return name == base || strings.HasSuffix(name, "."+base)
	}
	if base, ok := strings.CutPrefix(pattern, "*."); ok {
		return strings.HasSuffix(name, "."+base)
	}
	return name == pattern
}

// covers tells whether the rule names the destination.
func (r modelRule) covers(q policy.Request) bool {
	if r.net != "" {
		return q.Destination.Addr().IsValid() && holds(r.net, q.Destination.Addr())
	}
	return q.Destination.Name() != "" && hostCovers(r.host, q.Destination.Name())
}

func (r modelRule) portFits(q policy.Request) bool {
	switch {
	case q.Proto == policy.ProtoDNS:
		return true
	case len(r.ports) > 0:
		return slices.Contains(r.ports, q.Destination.Port())
	case q.Proto == policy.ProtoHTTP:
		return q.Destination.Port() == 80
	default:
		return q.Destination.Port() == 443
	}
}

// mayResolve tells whether an allow rule lets its name have all these addresses.
func (r modelRule) mayResolve(addrs []netip.Addr) bool {
	for _, a := range addrs {
		listed := slices.ContainsFunc(r.resolves, func(n string) bool { return holds(n, a) })
		if reason, _ := (model{}).classify(false, a.Unmap()); !listed && (reason != "" || len(r.resolves) > 0) {
			return false
		}
	}
	return true
}

func (r modelRule) denies(q policy.Request) bool {
	if len(r.ports) > 0 && (q.Proto == policy.ProtoDNS || !slices.Contains(r.ports, q.Destination.Port())) {
		return false
	}
	if r.net != "" && slices.ContainsFunc(q.Addrs, func(a netip.Addr) bool { return holds(r.net, a) }) {
		return true
	}
	return r.covers(q) && !slices.ContainsFunc(r.except, func(e string) bool { return hostCovers(e, q.Destination.Name()) })
}

// atEnd are the denials of the last step.
var atEnd = []policy.Reason{
	policy.ReasonNotListed, policy.ReasonPortNotListed, policy.ReasonIPLiteralNotListed, policy.ReasonProtocolMismatch,
}

func TestDecideAgreesWithReference(t *testing.T) {
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := genModel().Draw(t, "policy")
		s, err := policy.Compile(m.files())
		require.NoError(t, err)
		for range 40 {
			r := genRequest().Draw(t, "request")
			d := s.Decide(r)
			got := verdict(d)
			if slices.Contains(atEnd, d.Reason) || slices.Contains(atEnd, d.Would) {
				got = strings.Fields(got)[0] + " default"
			}
			want := m.reference(r)
			// Several rules with parts of an answer each: no rule has it all.
			if want == "deny default" && got == "deny dest_private" && len(r.Addrs) > 1 {
				got = want
			}
			require.Equal(t, want, got, "%v %s %v\n%+v", r.Destination, r.Proto, r.Addrs, m)
			counts[want]++
			checkRule(t, m, r, d)
		}
	})
	// The generator reaches every verdict; else agreement means nothing.
	for _, want := range []string{
		"allow rule", "allow open_network", "observe default", "deny default", "deny deny_rule", "deny dest_private", "deny dest_self",
		"deny dest_metadata", "deny local_name", "deny mode_blocked", "deny bad_identity",
	} {
		require.NotZero(t, counts[want], want)
	}
}

// checkRule wants the rule that is named to be one that covers the request.
func checkRule(t require.TestingT, m model, r policy.Request, d policy.Decision) {
	if d.Rule == nil {
		require.NotEqual(t, policy.ReasonRule, d.Reason)
		require.NotEqual(t, policy.ReasonDenyRule, d.Reason)
		return
	}
	for _, rule := range slices.Concat(m.allow, m.deny, m.global) {
		if rule.id == d.Rule.ID {
			if d.Reason == policy.ReasonDenyRule {
				require.True(t, rule.denies(r))
				return
			}
			require.True(t, rule.covers(r))
			return
		}
	}
	require.Fail(t, "no such rule", d.Rule.ID)
}
