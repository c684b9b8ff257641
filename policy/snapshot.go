package policy

import (
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Snapshot is a compiled policy. It is immutable and safe for concurrent use; a
// nil Snapshot denies everything with [ReasonNoPolicy]. Load it once for each
// request and use that one for every later step.
type Snapshot struct {
	digest   string
	profiles map[string]*profile
	global   ruleSet // deny rules above all products
	notices  []Problem
}

// Digest identifies the policy: "sha256:" and 64 hex digits over every file it
// was compiled from; "" for a nil Snapshot.
func (s *Snapshot) Digest() string {
	if s == nil {
		return ""
	}
	return s.digest
}

// Notices are things worth knowing that did not stop the load, such as a host
// that was brought to normal form. The caller must not change them.
func (s *Snapshot) Notices() []Problem {
	if s == nil {
		return nil
	}
	return s.notices
}

// Mode is whether denials are enforced.
type Mode string

// Modes. The zero value is enforced.
const (
	ModeEnforce Mode = "enforce"
	ModeObserve Mode = "observe"
)

// Network is what a profile may reach by default.
type Network string

// Networks. The zero value is an allowlist.
const (
	NetworkBlocked   Network = "blocked"
	NetworkAllowlist Network = "allowlist"
	NetworkOpen      Network = "open"
)

// Profile describes one kind of traffic of a product, for listeners and status.
type Profile struct {
	// Name is product/profile, such as claude-code/commands.
	Name    string
	Product string
	Surface string
	// Port of the listener on 127.0.0.1 and ::1; 0 means any free port.
	Port uint16
	// DNS says that the profile has a DNS listener; DNSPort is its port, UDP and
	// TCP, 0 for any free one.
	DNS     bool
	DNSPort uint16
	// Unix is the file name of a Unix socket that serves the same as the port,
	// "" for none; UnixMode are its permissions.
	Unix     string
	UnixMode fs.FileMode
	Mode     Mode
	Network  Network
	// ObserveUntil ends mode observe; the zero time means no end.
	ObserveUntil time.Time
	// Allow and Deny count the rules, those of host groups included.
	Allow, Deny int
}

// Profiles lists the profiles in the order of their names; nil for a nil
// Snapshot. The caller owns the slice.
func (s *Snapshot) Profiles() []Profile {
	if s == nil {
		return nil
	}
	out := make([]Profile, 0, len(s.profiles))
	for _, p := range s.profiles {
		out = append(out, p.info)
	}
	slices.SortFunc(out, func(a, b Profile) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Profile returns the profile of that name.
func (s *Snapshot) Profile(name string) (Profile, bool) {
	if s == nil {
		return Profile{}, false
	}
	p, ok := s.profiles[name]
	if !ok {
		return Profile{}, false
	}
	return p.info, true
}

type profile struct {
	info  Profile
	allow ruleSet
	deny  ruleSet
}

// Rule is one compiled rule. It is shared and immutable.
type Rule struct {
	// ID is the rule's own or one made from its place and content.
	ID string
	// File and Line are where it stands.
	File string
	Line int
	// Why is the author's explanation, "" if there is none.
	Why string

	// What every decision reads stands together.
	host    pattern
	expires time.Time // zero: never
	ports   []uint16  // empty: the default ports of allow, all of deny
	// resolvesTo, when set, are all the addresses the name may have.
	resolvesTo []netip.Prefix
	except     []pattern
	prefix     netip.Prefix // of ip and cidr rules
	// tlsAny lifts the check of the ClientHello, echRefused adds to it.
	tlsAny, echRefused bool
}

// hasPort tells whether port is listed.
func (r *Rule) hasPort(port uint16) bool { return slices.Contains(r.ports, port) }

// allowsPort tells whether an allow rule covers the port for the protocol.
func (r *Rule) allowsPort(port uint16, proto Proto) bool {
	if len(r.ports) > 0 && proto != ProtoDNS {
		return r.hasPort(port)
	}
	return defaultPort(port, proto)
}

// defaultPort tells whether an allow rule without ports covers the port.
func defaultPort(port uint16, proto Proto) bool {
	switch proto {
	case ProtoDNS:
		// A name may be resolved if any port of it may be reached.
		return true
	case ProtoHTTP:
		return port == 80
	default:
		return port == 443
	}
}

// deniesPort tells whether a deny rule covers the port. In DNS, which knows no
// port, only a rule that denies all of them does.
func (r *Rule) deniesPort(port uint16, proto Proto) bool {
	return len(r.ports) == 0 || proto != ProtoDNS && r.hasPort(port)
}

// excepted tells whether a deny rule spares the name.
func (r *Rule) excepted(name string) bool {
	for i := range r.except {
		if r.except[i].matches(name) {
			return true
		}
	}
	return false
}

// ruleSet finds rules by name or address.
type ruleSet struct {
	hosts map[string]hostRules
	nets  map[netip.Prefix][]*Rule
	// bits4 and bits6 are the lengths of the prefixes, longest first.
	bits4, bits6 []int
	count        int
	// expiring says that a rule has an end.
	expiring bool
	// ancestors are the names above a host of the set.
	ancestors map[string]struct{}
}

// hostRules are the rules of one host. Nearly every host has one, which then
// stands in the map itself.
type hostRules struct {
	first entry
	more  *[]entry
}

// at returns entry i; after the last it has no rule.
func (h *hostRules) at(i int) entry {
	switch {
	case i == 0:
		return h.first
	case h.more != nil && i <= len(*h.more):
		return (*h.more)[i-1]
	default:
		return entry{}
	}
}

// entry is a rule with what a decision by name needs of nearly every rule, so
// that the rule itself, which is far away in memory, is seldom read.
type entry struct {
	rule *Rule
	// exact and below are those of the rule's host.
	exact, below bool
	// plain says that the rule has no ports, no addresses, no end and no options.
	plain bool
}

func newEntry(r *Rule) entry {
	return entry{
		rule: r, exact: r.host.exact, below: r.host.below,
		plain: len(r.ports) == 0 && len(r.resolvesTo) == 0 && r.expires.IsZero() && !r.tlsAny && !r.echRefused,
	}
}

// resolvesTo is the resolvesTo of the rule.
func (e entry) resolvesTo() []netip.Prefix {
	if e.plain {
		return nil
	}
	return e.rule.resolvesTo
}

func (e entry) expired(now time.Time) bool { return !e.plain && e.rule.expired(now) }

// allowsPort is the allowsPort of the rule.
func (e entry) allowsPort(port uint16, proto Proto) bool {
	if e.plain {
		return defaultPort(port, proto)
	}
	return e.rule.allowsPort(port, proto)
}

func (rs *ruleSet) add(r *Rule) {
	rs.count++
	rs.expiring = rs.expiring || !r.expires.IsZero()
	if r.prefix.IsValid() {
		rs.addNet(r)
		return
	}
	if rs.hosts == nil {
		rs.hosts = map[string]hostRules{}
	}
	rs.addAncestors(r.host)
	h := rs.hosts[r.host.name]
	switch {
	case h.first.rule == nil:
		h.first = newEntry(r)
	case h.more == nil:
		h.more = &[]entry{newEntry(r)}
	default:
		*h.more = append(*h.more, newEntry(r))
	}
	rs.hosts[r.host.name] = h
}

func (rs *ruleSet) addNet(r *Rule) {
	if rs.nets == nil {
		rs.nets = map[netip.Prefix][]*Rule{}
	}
	rs.nets[r.prefix] = append(rs.nets[r.prefix], r)
	lengths := &rs.bits6
	if r.prefix.Addr().Is4() {
		lengths = &rs.bits4
	}
	i, found := slices.BinarySearchFunc(*lengths, r.prefix.Bits(), func(have, want int) int { return want - have })
	if !found {
		*lengths = slices.Insert(*lengths, i, r.prefix.Bits())
	}
}

// each calls f once for every rule.
func (rs *ruleSet) each(f func(*Rule)) {
	for _, rules := range rs.nets {
		for _, r := range rules {
			f(r)
		}
	}
	for _, h := range rs.hosts {
		for i := 0; h.at(i).rule != nil; i++ {
			f(h.at(i).rule)
		}
	}
}

// forName calls f for each rule whose host covers name and that has not
// expired, most specific name first, until f returns false.
func (rs *ruleSet) forName(name string, now time.Time, f func(entry) bool) {
	if len(rs.hosts) == 0 {
		return
	}
	for rest := name; ; {
		h := rs.hosts[rest]
		for i := 0; ; i++ {
			e := h.at(i)
			if e.rule == nil {
				break
			}
			covers := e.below
			if len(rest) == len(name) {
				covers = e.exact
			}
			if covers && !e.expired(now) && !f(e) {
				return
			}
		}
		dot := strings.IndexByte(rest, '.')
		if dot < 0 {
			return
		}
		rest = rest[dot+1:]
	}
}

// forAddr calls f for each ip or cidr rule that holds a and has not expired,
// narrowest range first, until f returns false. No rule holds an address with a zone.
func (rs *ruleSet) forAddr(a netip.Addr, now time.Time, f func(*Rule) bool) {
	if len(rs.nets) == 0 || !a.IsValid() || a.Zone() != "" {
		return
	}
	lengths := rs.bits6
	if a.Is4() {
		lengths = rs.bits4
	}
	for _, bits := range lengths {
		p, err := a.Prefix(bits)
		if err != nil {
			return
		}
		for _, r := range rs.nets[p] {
			if !r.expired(now) && !f(r) {
				return
			}
		}
	}
}

// Why returns the author's explanation of a rule that the profile uses, "" if
// there is none. It is meant for people and searches all rules.
func (s *Snapshot) Why(profile, ruleID string) string {
	if s == nil {
		return ""
	}
	sets := []*ruleSet{&s.global}
	if p := s.profiles[profile]; p != nil {
		sets = append(sets, &p.deny, &p.allow)
	}
	for _, rs := range sets {
		if r := rs.byID(ruleID); r != nil {
			return r.Why
		}
	}
	return ""
}

func (rs *ruleSet) byID(id string) *Rule {
	for _, rules := range rs.nets {
		for _, r := range rules {
			if r.ID == id {
				return r
			}
		}
	}
	for _, h := range rs.hosts {
		for i := 0; h.at(i).rule != nil; i++ {
			if r := h.at(i).rule; r.ID == id {
				return r
			}
		}
	}
	return nil
}
