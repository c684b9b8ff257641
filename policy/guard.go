package policy

import "net/netip"

// The guard: what no allow rule opens by naming a host alone.

// guardDestination judges what can be judged before any look-up: the name
// itself, or the literal address. It is true when it refused.
func (p *profile) guardDestination(r *Request, d *Decision) bool {
	if a := r.Destination.addr; a.IsValid() {
		c := r.Local.classify(a, r.listenerPort())
		if c.public || c.override != never && p.grantsLiteral(r) {
			return false
		}
		d.guard(c, a)
		return true
	}
	switch r.Destination.kind() {
	case namePublic:
		return false
	case nameLocal:
		if p.grantsName(r) {
			return false
		}
		d.builtin(ReasonLocalName)
	case nameMetadata:
		d.builtin(ReasonDestMetadata)
	default:
		d.builtin(ReasonLocalName)
	}
	return true
}

// guard refuses an address.
func (d *Decision) guard(c AddrClass, a netip.Addr) {
	d.Action, d.Reason, d.Layer, d.Range, d.Addr = ActionDeny, c.Reason, LayerBuiltin, c.Range, a
}

// guardAddrs judges the addresses that are known by now: those of a name, or
// what was dialled for an address, which must be that address. It is true when
// it refused.
func (p *profile) guardAddrs(r *Request, d *Decision) bool {
	literal := r.Destination.addr
	for _, a := range r.Addrs {
		a = a.Unmap()
		if literal.IsValid() {
			if a != literal {
				d.guard(AddrClass{Range: "not the address asked for", Reason: ReasonDestPrivate}, a)
				return true
			}
			continue // judged as the destination
		}
		c := r.Local.classify(a, r.listenerPort())
		if !c.public && (c.override == never || !p.grantsAddr(r, a)) {
			d.guard(c, a)
			return true
		}
	}
	return false
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
	p.allow.forName(r.Destination.name, r.Now, func(e entry) bool {
		ok = e.allowsPort(r.Destination.port, r.Proto) && containsAddr(e.resolvesTo(), a)
		return !ok
	})
	return ok
}

// grantsName tells whether a rule with resolves_to names an always-local name.
func (p *profile) grantsName(r *Request) (ok bool) {
	p.allow.forName(r.Destination.name, r.Now, func(e entry) bool {
		ok = len(e.resolvesTo()) > 0 && e.allowsPort(r.Destination.port, r.Proto)
		return !ok
	})
	return ok
}

// judgeAddrs judges every address of a name; one bad one refuses the answer as
// a whole. resolvesTo may grant special-purpose addresses and, unless it is
// empty, names all the addresses the name may have. It is true when it refused.
func (s *LocalSet) judgeAddrs(r *Request, resolvesTo []netip.Prefix, d *Decision) bool {
	for _, a := range r.Addrs {
		a = a.Unmap()
		c := s.classify(a, r.listenerPort())
		listed := containsAddr(resolvesTo, a)
		switch {
		case c.public:
			if len(resolvesTo) > 0 && !listed {
				d.Action, d.Reason, d.Layer, d.Addr, d.Range = ActionDeny, ReasonNotListed, LayerProduct, a, RangePublic
				d.Detail = "the name resolves to an address outside the rule's resolves_to"
				return true
			}
		case c.override == never || !listed:
			d.guard(c, a)
			return true
		}
	}
	return false
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
