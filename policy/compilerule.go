package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// allow compiles an allow rule.
func (c *compiler) allow(s *source, f allowFile, path, owner string) (*Rule, bool) {
	r, ok := target(s, f.target(), path)
	if !ok {
		return nil, false
	}
	if wide := f.Wide.V || s.troubled(path, "wide"); !wide &&
		!narrow(s, r.host, f.Host, path+".host", "list the hosts, or add wide: true to the rule if it is meant") {
		return nil, false
	}
	if r.prefix.IsValid() {
		switch {
		case f.ResolvesTo != nil:
			s.fail(f.Pos, path+".resolves_to", "remove it", "resolves_to belongs to a host")
			return nil, false
		case f.Wide.V:
			s.fail(f.Wide.Pos, path+".wide", "remove it", "wide belongs to a wildcard host")
			return nil, false
		}
		v, key := f.CIDR, ".cidr"
		if f.IP.Pos.Line > 0 {
			v, key = f.IP, ".ip"
		}
		if !openable(s, r.prefix, r.ports, v.Pos, path+key) {
			return nil, false
		}
	}
	for i, v := range f.ResolvesTo {
		at := index(path+".resolves_to", i)
		p, good := prefix(s, v, at, true)
		if !good || !openable(s, p, r.ports, v.Pos, at) {
			ok = false
			continue
		}
		r.resolvesTo = append(r.resolvesTo, p)
	}
	ok = option(s, &r.tlsAny, f.TLS, path+".tls", "required", "any") && ok
	ok = option(s, &r.echRefused, f.ECH, path+".ech", "allow", "refuse") && ok
	if f.ResolvesTo != nil && len(f.ResolvesTo) == 0 {
		s.fail(f.Pos, path+".resolves_to", "list the addresses, or remove the key", "resolves_to is empty")
		ok = false
	}
	if !ok {
		return nil, false
	}
	c.name(s, r, f.target(), path, owner+":allow:")
	return r, true
}

// option reads a key that has two words, of which the second sets to.
func option(s *source, to *bool, v located[string], path, off, on string) bool {
	if v.Pos.Line == 0 || v.V == off {
		return true
	}
	*to = v.V == on
	if !*to {
		s.fail(v.Pos, path, off+" or "+on, "the word is not known")
	}
	return *to
}

// deny compiles a deny rule.
func (c *compiler) deny(s *source, f denyFile, path, owner string) (*Rule, bool) {
	// A deny rule may be as wide as its author likes.
	r, ok := target(s, f.target(), path)
	if !ok {
		return nil, false
	}
	for i, v := range f.Except {
		at := index(path+".except", i)
		if r.prefix.IsValid() {
			s.fail(v.Pos, at, "list narrower ranges instead", "except belongs to a host")
			return nil, false
		}
		p, good := hostPattern(s, v, at)
		switch {
		case !good:
			ok = false
		case p.covers(r.host):
			s.fail(v.Pos, at, "remove the rule or the exception", "the exception leaves nothing of the deny rule")
			ok = false
		case !r.host.covers(p):
			s.fail(v.Pos, at, "remove it", "the deny rule does not cover %s", p)
			ok = false
		default:
			r.except = append(r.except, p)
		}
	}
	if !ok {
		return nil, false
	}
	c.name(s, r, f.target(), path, owner+":deny:")
	return r, true
}

// target reads host, ip or cidr (exactly one) and the ports.
func target(s *source, f targetFile, path string) (*Rule, bool) {
	r := &Rule{File: s.file.Name, Line: f.pos.Line, Why: f.why.V}
	set := 0
	for _, v := range []located[string]{f.host, f.ip, f.cidr} {
		if v.Pos.Line > 0 {
			set++
		}
	}
	if set != 1 {
		// An unknown key was probably meant to be the one that is missing.
		if set > 0 || len(s.unknown[path]) == 0 {
			s.fail(f.pos, path, "a rule has exactly one of them", "host, ip or cidr: %d are given", set)
		}
		return nil, false
	}
	var ok bool
	switch {
	case f.host.Pos.Line > 0:
		r.host, ok = hostPattern(s, f.host, path+".host")
	case f.ip.Pos.Line > 0:
		r.prefix, ok = address(s, f.ip, path+".ip")
	default:
		r.prefix, ok = prefix(s, f.cidr, path+".cidr", false)
	}
	if !ports(s, r, f, path) {
		ok = false
	}
	if f.expires.Pos.Line > 0 {
		t, err := parseTime(f.expires.V)
		if err != nil {
			s.fail(f.expires.Pos, path+".expires", timeHint, "this is not a time")
			ok = false
		}
		r.expires = t
	}
	return r, ok
}

// ports reads the ports of a rule.
func ports(s *source, r *Rule, f targetFile, path string) bool {
	if f.ports != nil && len(f.ports) == 0 {
		s.fail(f.pos, path+".ports", "list the ports, or remove the key for the default ones", "the list of ports is empty")
		return false
	}
	ok := true
	seen := make(map[int]bool, len(f.ports))
	for i, p := range f.ports {
		at := index(path+".ports", i)
		switch {
		case p.V < 1 || p.V > 65535:
			s.fail(p.Pos, at, "1 to 65535", "the port is out of range")
			ok = false
		case seen[p.V]:
			s.fail(p.Pos, at, "remove one", "the port is listed twice")
			ok = false
		default:
			seen[p.V] = true
			r.ports = append(r.ports, uint16(p.V))
		}
	}
	slices.Sort(r.ports)
	return ok
}

func hostPattern(s *source, v located[string], path string) (pattern, bool) {
	p, notice, fault := parsePattern(v.V)
	if fault != nil {
		s.fail(v.Pos, path, fault.hint, "%s", fault.msg)
		return pattern{}, false
	}
	if notice != "" {
		s.notice(v.Pos, path, "%s", notice)
	}
	return p, true
}

// narrow refuses a wildcard that reaches across organisations.
func narrow(s *source, p pattern, v located[string], path, hint string) bool {
	if p.coversPublicSuffix() {
		s.fail(v.Pos, path, hint, "anybody can own a name below %s", p.name)
		return false
	}
	return true
}

func address(s *source, v located[string], path string) (netip.Prefix, bool) {
	a, err := netip.ParseAddr(v.V)
	switch {
	case err != nil:
		hint := "four decimal numbers, or an IPv6 address without brackets"
		if _, perr := netip.ParsePrefix(v.V); perr == nil {
			hint = "write cidr: " + printable(v.V)
		}
		s.fail(v.Pos, path, hint, "this is not an address")
	case a.Zone() != "":
		s.fail(v.Pos, path, "write it without the zone", "an address with a zone can not be a destination")
	case a.Is4In6():
		s.fail(v.Pos, path, "write "+a.Unmap().String(), "an IPv4-mapped address is written as IPv4")
	default:
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	return netip.Prefix{}, false
}

// prefix reads an address range; single allows a plain address too.
func prefix(s *source, v located[string], path string, single bool) (netip.Prefix, bool) {
	if single && !strings.Contains(v.V, "/") {
		return address(s, v, path)
	}
	p, err := netip.ParsePrefix(v.V)
	switch {
	case err != nil:
		hint := "write it as 10.20.0.0/16"
		if a, aerr := netip.ParseAddr(v.V); aerr == nil {
			hint = "write ip: " + a.WithZone("").String()
		}
		s.fail(v.Pos, path, hint, "this is not an address range")
	case p.Addr().Is4In6():
		s.fail(v.Pos, path, "write it as IPv4", "an IPv4-mapped range can not be used")
	case p.Masked() != p:
		s.fail(v.Pos, path, "write "+p.Masked().String(), "the range has bits set beyond its length")
	default:
		return p, true
	}
	return netip.Prefix{}, false
}

// openable checks that a rule may open the range: it lies wholly in public
// space or wholly in one special-purpose range that a rule can open. Single
// metadata addresses inside stay refused.
func openable(s *source, p netip.Prefix, ports []uint16, pos Position, path string) bool {
	shown := p.String()
	if p.IsSingleIP() {
		shown = p.Addr().String()
	}
	for i := range specialRanges {
		r := &specialRanges[i]
		if !r.prefix.Overlaps(p) {
			continue
		}
		inside := r.prefix.Bits() <= p.Bits()
		switch {
		case r.metadata && inside:
			s.fail(pos, path, "remove it", "%s belongs to %s, which no rule can open", shown, r.name)
			return false
		case r.metadata:
			continue
		case !inside:
			s.fail(pos, path, "list the ranges that are needed one by one", "%s covers %s (%s), which is blocked", shown, r.prefix, r.name)
			return false
		case r.override == never:
			s.fail(pos, path, "remove it", "%s lies in %s (%s), which no rule can open", shown, r.prefix, r.name)
			return false
		case r.override == exactOnly && !p.IsSingleIP():
			s.fail(pos, path, "write one address", "loopback is opened by its exact address only")
			return false
		case r.override == exactOnly && len(ports) == 0:
			s.fail(pos, path, "add ports: [8443] to the rule", "loopback is opened by its exact address and ports only")
			return false
		case p.IsSingleIP() && ClassifyAddr(p.Addr()).override == never:
			s.fail(pos, path, "remove it", "%s leads to a metadata service, which no rule can open", shown)
			return false
		default:
			return true
		}
	}
	if p.Addr().Is6() && (p.Bits() < globalUnicast.Bits() || !globalUnicast.Contains(p.Addr())) {
		s.fail(pos, path, "only addresses in 2000::/3 are public", "%s is not public and no rule can open it", shown)
		return false
	}
	if c := ClassifyAddr(p.Addr()); p.IsSingleIP() && !c.public {
		s.fail(pos, path, "remove it", "%s belongs to %s, which no rule can open", shown, c.Range)
		return false
	}
	return true
}

// target is the rule's content in one line, for ids and duplicates.
func (r *Rule) target() string {
	b := []byte(r.host.String())
	switch {
	case r.prefix.IsSingleIP():
		b = r.prefix.Addr().AppendTo(nil)
	case r.prefix.IsValid():
		b = r.prefix.AppendTo(nil)
	}
	sep := " "
	for _, p := range r.ports {
		b = strconv.AppendUint(append(b, sep...), uint64(p), 10)
		sep = ","
	}
	sep = " -> "
	for _, p := range r.resolvesTo {
		b = p.AppendTo(append(b, sep...))
		sep = ","
	}
	if r.tlsAny {
		b = append(b, " tls any"...)
	}
	if r.echRefused {
		b = append(b, " ech refuse"...)
	}
	sep = " except "
	for _, p := range r.except {
		b = append(append(b, sep...), p.String()...)
		sep = ","
	}
	return string(b)
}

// name gives the rule its id: its own, which must be unique, or one made from
// place and content that stays the same when other rules change.
func (c *compiler) name(s *source, r *Rule, f targetFile, path, prefix string) {
	if f.id.Pos.Line == 0 {
		r.ID = prefix + r.target()
		return
	}
	id := f.id.V
	if !isID(id) {
		s.fail(f.id.Pos, path+".id", "letters, digits, hyphen, dot and underscore, at most 64", "this can not be an id")
		return
	}
	place := fmt.Sprintf("%s:%d", s.file.Name, f.id.Pos.Line)
	if other, taken := c.ids[id]; taken {
		s.fail(f.id.Pos, path+".id", "choose another", "%s has this id already", other)
		return
	}
	c.ids[id] = place
	r.ID = id
}

func isID(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}
