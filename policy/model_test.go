package policy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"sluicegate/policy"

	"pgregory.net/rapid"
)

// model is a small random policy that can be written as files and judged
// slowly, rule by rule (reference_test.go).
type model struct {
	network policy.Network
	observe bool
	until   time.Time // zero for none
	allow   []modelRule
	deny    []modelRule
	global  []modelRule
}

// modelRule has a host or a net.
type modelRule struct {
	id       string
	host     string // as in a file, with its stars
	net      string
	ports    []uint16
	resolves []string
	except   []string
}

// The world that models and requests are made of is small, so that rules meet.
var (
	modelNames = []string{
		"a.test", "x.a.test", "y.x.a.test", "e.x.a.test", "b.test", "x.b.test", "e.b.test", "ab.test", "h.internal", "x.h.internal",
		"metadata.goog", "nas",
	}
	modelHosts = []string{"a.test", "x.a.test", "b.test", "h.internal", "y.x.a.test", "nas", "metadata.goog"}
	modelNets  = []string{
		"93.184.216.34/32", "93.184.216.0/24", "93.0.0.0/8", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "2606:4700::/32",
		"fd12::/32", "192.168.0.0/16",
	}
	modelAddrs = []string{
		"93.184.216.34", "93.184.216.35", "93.1.1.1", "1.1.1.1", "10.0.0.1", "10.1.0.1", "10.1.2.3", "192.168.0.1", "192.168.0.20",
		"127.0.0.1", "169.254.169.254", "192.168.169.254", "2606:4700::1", "2001:200::1", "fd12::1", "fd12::a9fe:a9fe", "fe80::1",
		"::ffff:10.1.2.3", "::ffff:93.184.216.34", "2606:4700::1%eth0",
	}
	modelPorts = []uint16{80, 443, 22, 8443}
)

// modelMachine owns one private and one public address.
var modelMachine = policy.NewLocalSet(
	[]netip.Addr{netip.MustParseAddr("192.168.0.20"), netip.MustParseAddr("93.184.216.35")}, []uint16{18001},
)

func genModel() *rapid.Generator[model] {
	return rapid.Custom(func(t *rapid.T) model {
		m := model{
			network: rapid.SampledFrom([]policy.Network{policy.NetworkAllowlist, policy.NetworkAllowlist, policy.NetworkOpen, policy.NetworkBlocked}).Draw(t, "network"),
			observe: rapid.Bool().Draw(t, "observe"),
		}
		if m.observe {
			m.until = rapid.SampledFrom([]time.Time{{}, now.Add(time.Hour), now.Add(-time.Hour)}).Draw(t, "until")
		}
		m.allow = genRules(t, "allow", 6)
		m.deny = genRules(t, "deny", 2)
		m.global = genRules(t, "global", 1)
		return m
	})
}

// genRules draws rules of which no two are the same.
func genRules(t *rapid.T, kind string, most int) []modelRule {
	rules := rapid.SliceOfNDistinct(genRule(kind), 0, most, modelRule.key).Draw(t, kind)
	for i := range rules {
		rules[i].id = fmt.Sprintf("%s-%d", kind, i)
	}
	return rules
}

func genRule(kind string) *rapid.Generator[modelRule] {
	ports := rapid.SliceOfNDistinct(rapid.SampledFrom(modelPorts), 0, 2, rapid.ID[uint16])
	return rapid.Custom(func(t *rapid.T) modelRule {
		r := modelRule{ports: ports.Draw(t, "ports")}
		if rapid.IntRange(0, 3).Draw(t, "by net") == 0 {
			r.net = rapid.SampledFrom(modelNets).Draw(t, "net")
			return r
		}
		host := rapid.SampledFrom(modelHosts).Draw(t, "host")
		r.host = rapid.SampledFrom([]string{"", "*.", "**."}).Draw(t, "stars") + host
		switch {
		case kind == "allow":
			r.resolves = rapid.SliceOfNDistinct(rapid.SampledFrom(modelNets), 0, 2, rapid.ID[string]).Draw(t, "resolves")
		case r.host != host && rapid.Bool().Draw(t, "with exception"):
			r.except = []string{"e." + host}
		}
		return r
	})
}

func (r modelRule) key() string {
	return fmt.Sprint(r.host, r.net, len(r.resolves) > 0, len(r.except) > 0, len(r.ports))
}

// yaml writes the rule, wide where that is known.
func (r modelRule) yaml(allow bool) string {
	parts := []string{fmt.Sprintf("host: %q", r.host)}
	if r.net != "" {
		parts[0] = fmt.Sprintf("cidr: %q", r.net)
	} else if allow {
		parts = append(parts, "wide: true")
	}
	list := func(key string, items []string) {
		if len(items) > 0 {
			parts = append(parts, key+`: ["`+strings.Join(items, `", "`)+`"]`)
		}
	}
	if len(r.ports) > 0 {
		parts = append(parts, "ports: "+strings.ReplaceAll(fmt.Sprint(r.ports), " ", ", "))
	}
	list("resolves_to", r.resolves)
	list("except", r.except)
	if r.id != "" {
		parts = append(parts, "id: "+r.id)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// files writes the policy: rules add up over files, so the deny rules have one
// of their own.
func (m model) files() []policy.File {
	mode := "enforce"
	if m.observe {
		mode = "observe"
		if !m.until.IsZero() {
			mode += "\nobserve_until: " + m.until.Format(time.RFC3339)
		}
	}
	rules := func(rules []modelRule, allow bool) string {
		var out []string
		for _, r := range rules {
			out = append(out, r.yaml(allow))
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	return files(
		oneProfile(fmt.Sprintf("network: %s\nmode: %s\nallow: %s", m.network, mode, rules(m.allow, true))),
		"version: 1\nproduct: test\nprofiles: {p: {deny: "+rules(m.deny, false)+"}}\n",
		"version: 1\nglobal: {deny: "+rules(m.global, false)+"}\n",
	)
}

// genRequest draws a request to the model's world.
func genRequest() *rapid.Generator[policy.Request] {
	return rapid.Custom(func(t *rapid.T) policy.Request {
		port := rapid.SampledFrom(modelPorts).Draw(t, "port")
		host := rapid.SampledFrom(modelNames).Draw(t, "name")
		literal := rapid.IntRange(0, 3).Draw(t, "by address") == 0
		if literal {
			host = strings.TrimSuffix(rapid.SampledFrom(modelAddrs).Draw(t, "address"), "%eth0")
		}
		d, err := policy.ParseHostPort(host, port)
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		r := request(d, rapid.SampledFrom([]policy.Proto{policy.ProtoConnect, policy.ProtoHTTP, policy.ProtoDNS, ""}).Draw(t, "proto"))
		if literal && r.Proto == policy.ProtoDNS {
			r.Proto = policy.ProtoConnect // DNS asks for names only
		}
		r.Local = rapid.SampledFrom([]*policy.LocalSet{nil, modelMachine}).Draw(t, "machine")
		r.Addrs = rapid.SliceOfN(rapid.Map(rapid.SampledFrom(modelAddrs), netip.MustParseAddr), 0, 3).Draw(t, "addrs")
		if literal && rapid.Bool().Draw(t, "dialled as asked") {
			r.Addrs = []netip.Addr{d.Addr()}
		}
		r.Entitled = rapid.IntRange(0, 9).Draw(t, "entitled") > 0
		return r
	})
}
