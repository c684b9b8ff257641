package policy

import "net/netip"

// The guard: what no allow rule opens by naming a host alone.

// guardDestination judges what can be judged before any look-up: the name
// itself, or the literal address.
func (p *profile) guardDestination(r *Request) (Decision, bool) {
	if a := r.Destination.addr; a.IsValid() {
		c := r.Local.classify(a, r.listenerPort())
		if c.public || c.override != never && p.grantsLiteral(r) {
			return Decision{}, false
		}
		return guardRefusal(c, a), true
	}
	switch classifyName(r.Destination.name) {
	case namePublic:
		return Decision{}, false
	case nameLocal:
		if p.grantsName(r) {
			return Decision{}, false
		}
		return builtin(ReasonLocalName), true
	case nameMetadata:
		return builtin(ReasonDestMetadata), true
	default:
		return builtin(ReasonLocalName), true
	}
}

func guardRefusal(c AddrClass, a netip.Addr) Decision {
	return Decision{Reason: c.Reason, Layer: LayerBuiltin, Range: c.Range, Addr: a}
}

// guardAddrs judges the addresses that are known by now: those of a name, or
// what was dialled for an address, which must be that address.
func (p *profile) guardAddrs(r *Request) (Decision, bool) {
	literal := r.Destination.addr
	for _, a := range r.Addrs {
		a = a.Unmap()
		if literal.IsValid() {
			if a != literal {
				return guardRefusal(AddrClass{Range: "not the address asked for", Reason: ReasonDestPrivate}, a), true
			}
			continue // judged as the destination
		}
		c := r.Local.classify(a, r.listenerPort())
		if !c.public && (c.override == never || !p.grantsAddr(r, a)) {
			return guardRefusal(c, a), true
		}
	}
	return Decision{}, false
}

// grantsLiteral tells whether an ip or cidr rule opens a special-purpose
// address. Compile made sure that the rule may.
func (p *profile) grantsLiteral(r *Request) (ok bool) {
	p.allow.forAddr(r.Destination.addr, r.Now, func(rule *Rule) bool {
		ok = rule.allowsPort(r.Destination.port, r.Proto)
		return !ok
	})
	return ok
}

// grantsAddr tells whether a rule for the name has a in its resolves_to. That
// one rule has all the addresses is judged with the rule.
func (p *profile) grantsAddr(r *Request, a netip.Addr) (ok bool) {
	p.allow.forName(r.Destination.name, r.Now, func(rule *Rule) bool {
		ok = rule.allowsPort(r.Destination.port, r.Proto) && containsAddr(rule.resolvesTo, a)
		return !ok
	})
	return ok
}

// grantsName tells whether a rule with resolves_to names an always-local name.
func (p *profile) grantsName(r *Request) (ok bool) {
	p.allow.forName(r.Destination.name, r.Now, func(rule *Rule) bool {
		ok = len(rule.resolvesTo) > 0 && rule.allowsPort(r.Destination.port, r.Proto)
		return !ok
	})
	return ok
}

// judgeAddrs judges every address of a name; one bad one refuses the answer as
// a whole. rule may grant special-purpose addresses by resolves_to, which are
// then all the addresses the name may have; nil grants none.
func (s *LocalSet) judgeAddrs(r *Request, rule *Rule) (Decision, bool) {
	for _, a := range r.Addrs {
		a = a.Unmap()
		c := s.classify(a, r.listenerPort())
		listed := rule != nil && containsAddr(rule.resolvesTo, a)
		switch {
		case c.public:
			if rule != nil && len(rule.resolvesTo) > 0 && !listed {
				return Decision{
					Reason: ReasonNotListed, Layer: LayerProduct, Addr: a, Range: RangePublic,
					Detail: "the name resolves to an address outside the rule's resolves_to",
				}, true
			}
		case c.override == never || !listed:
			return guardRefusal(c, a), true
		}
	}
	return Decision{}, false
}

func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// listenerPort is the port to look for among the gate's own listeners: a name
// that is only resolved has none.
func (r *Request) listenerPort() uint16 {
	if r.Proto == ProtoDNS {
		return 0
	}
	return r.Destination.port
}
