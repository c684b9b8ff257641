package policy

import (
	"net/netip"
	"time"
)

// beginning is a time at which no rule has expired.
var beginning = time.Unix(0, 0)

// Decide answers one request. It is the only function that does, allocates
// nothing and is safe for concurrent use. See the package documentation for
// the order of precedence.
func (s *Snapshot) Decide(r Request) Decision {
	d := s.decide(&r)
	d.Digest = s.Digest()
	return d
}

func (s *Snapshot) decide(r *Request) Decision {
	if s == nil {
		return builtin(ReasonNoPolicy)
	}
	p := s.profiles[r.Profile]
	if p == nil {
		return builtin(ReasonUnknownProfile)
	}
	d := s.judge(p, r)
	d.Profile = p.info
	return d
}

func (s *Snapshot) judge(p *profile, r *Request) Decision {
	switch {
	case !r.Entitled:
		return builtin(ReasonBadIdentity)
	case !r.Destination.IsValid():
		return builtin(ReasonMalformed)
	case p.info.Network == NetworkBlocked:
		return Decision{Reason: ReasonModeBlocked, Layer: LayerProduct}
	}
	if d, refused := p.guardDestination(r); refused {
		return d
	}
	if d, refused := p.guardAddrs(r); refused {
		return d
	}
	if d, refused := denied(&s.global, LayerGlobal, r); refused {
		return d
	}
	if d, refused := denied(&p.deny, LayerProduct, r); refused {
		return d
	}
	d := p.allowed(r)
	if d.Rule == nil && !d.Allowed() {
		d = p.lately(d, r)
	}
	if !d.Allowed() && p.info.observing(r.Now) && relaxable(d) && p.publicOnly(r) {
		d.Action, d.Would, d.Reason = ActionAllow, d.Reason, ReasonObserve
	}
	return d
}

func builtin(reason Reason) Decision { return Decision{Reason: reason, Layer: LayerBuiltin} }

// denied looks for a deny rule that covers the destination or, once they are
// known, one of its addresses.
func denied(rs *ruleSet, layer Layer, r *Request) (Decision, bool) {
	if rs.count == 0 {
		return Decision{}, false
	}
	if r.Now.IsZero() && rs.expiring {
		// A deny rule does not end because nobody knows the time.
		then := *r
		then.Now = beginning
		r = &then
	}
	port := r.Destination.port
	var hit *Rule
	if name := r.Destination.name; name != "" {
		rs.forName(name, r.Now, func(rule *Rule) bool {
			if rule.deniesPort(port, r.Proto) && !rule.excepted(name) {
				hit = rule
			}
			return hit == nil
		})
	} else {
		hit = deniedAddr(rs, r.Destination.addr, r)
	}
	for i := 0; hit == nil && i < len(r.Addrs); i++ {
		hit = deniedAddr(rs, r.Addrs[i].Unmap(), r)
	}
	if hit == nil {
		return Decision{}, false
	}
	return Decision{Reason: ReasonDenyRule, Layer: layer, Rule: hit}, true
}

func deniedAddr(rs *ruleSet, a netip.Addr, r *Request) (hit *Rule) {
	rs.forAddr(a, r.Now, func(rule *Rule) bool {
		if rule.deniesPort(r.Destination.port, r.Proto) {
			hit = rule
		}
		return hit == nil
	})
	return hit
}

// allowed is the last step: allow rules, then the profile's default.
func (p *profile) allowed(r *Request) Decision {
	if r.Destination.addr.IsValid() {
		return p.allowedLiteral(r)
	}
	return p.allowedName(r)
}

func (p *profile) allowedLiteral(r *Request) Decision {
	a, port := r.Destination.addr, r.Destination.port
	d := Decision{Reason: ReasonIPLiteralNotListed, Layer: LayerProduct}
	p.allow.forAddr(a, r.Now, func(rule *Rule) bool {
		if !rule.allowsPort(port, r.Proto) {
			if d.Reason != ReasonProtocolMismatch {
				d.Reason, d.Rule = portReason(rule, r), rule
			}
			return true
		}
		d = Decision{Action: ActionAllow, Reason: ReasonRule, Layer: LayerProduct, Rule: rule}
		return false
	})
	d = clearTextToTLS(d, r)
	switch {
	case d.Allowed():
		if c := r.Local.classify(a, r.listenerPort()); !c.public {
			d.Range, d.Addr = c.Range, a
		}
		return d
	case d.Reason == ReasonProtocolMismatch:
		return d
	default:
		return p.openNetwork(d, r)
	}
}

func (p *profile) allowedName(r *Request) Decision {
	// An always-local name is opened by resolves_to alone, whatever it resolves
	// to and however open the network is.
	local := classifyName(r.Destination.name) != namePublic
	d := Decision{Reason: ReasonNotListed, Layer: LayerProduct}
	p.allow.forName(r.Destination.name, r.Now, func(rule *Rule) bool {
		if local && len(rule.resolvesTo) == 0 {
			return true
		}
		// Of several refusals the one that came furthest says most.
		if got := p.byRule(rule, r); d.Rule == nil || got.Allowed() || d.Reason == ReasonPortNotListed {
			d = got
		}
		return !d.Allowed()
	})
	if d.Allowed() || d.Reason == ReasonProtocolMismatch || local {
		return d
	}
	return p.openNetwork(d, r)
}

// lately turns the refusal of what no rule covers into the one that says so
// when a rule did until it expired.
func (p *profile) lately(d Decision, r *Request) Decision {
	if !p.allow.expiring {
		return d
	}
	then := *r
	then.Now = beginning
	if got := p.allowed(&then); got.Allowed() && got.Rule != nil {
		d.Reason, d.Rule = ReasonRuleExpired, got.Rule
	}
	return d
}

// byRule judges the request by one rule that covers the name.
func (p *profile) byRule(rule *Rule, r *Request) Decision {
	d := Decision{Reason: ReasonRule, Layer: LayerProduct, Rule: rule}
	if !rule.allowsPort(r.Destination.port, r.Proto) {
		d.Reason = portReason(rule, r)
		return d
	}
	d.Action = ActionAllow
	if d = clearTextToTLS(d, r); !d.Allowed() {
		return d
	}
	if refusal, refused := r.Local.judgeAddrs(r, rule); refused {
		refusal.Rule = rule
		return refusal
	}
	if len(r.Addrs) > 0 && len(rule.resolvesTo) > 0 {
		d.Addr = r.Addrs[0].Unmap()
		d.Range = r.Local.classify(d.Addr, r.listenerPort()).Range
	}
	return d
}

// portReason tells a port that is not listed from clear text on a TLS port.
func portReason(rule *Rule, r *Request) Reason {
	if r.Proto == ProtoHTTP && r.Destination.port == 443 && rule.allowsPort(443, ProtoConnect) {
		return ReasonProtocolMismatch
	}
	return ReasonPortNotListed
}

// clearTextToTLS refuses plain HTTP to 443, the port of https, even when it is
// listed: what is listed there is TLS.
func clearTextToTLS(d Decision, r *Request) Decision {
	if d.Allowed() && r.Proto == ProtoHTTP && r.Destination.port == 443 {
		d.Action, d.Reason = ActionDeny, ReasonProtocolMismatch
	}
	return d
}

// openNetwork is the default of an open network for a request that no rule
// allowed; d is what the rules said.
func (p *profile) openNetwork(d Decision, r *Request) Decision {
	if p.info.Network != NetworkOpen {
		return d
	}
	open := Decision{Action: ActionAllow, Reason: ReasonOpenNetwork, Layer: LayerProduct}
	port := r.Destination.port
	switch {
	case r.Proto == ProtoDNS, port == 80, port == 443 && r.Proto != ProtoHTTP:
		if refusal, refused := r.Local.judgeAddrs(r, nil); refused {
			return refusal
		}
		return open
	case port == 443:
		d.Reason = ReasonProtocolMismatch
	default:
		d.Reason = ReasonPortNotListed
	}
	return d
}

// observing tells whether the profile only records denials at that time.
func (p *Profile) observing(now time.Time) bool {
	return p.Mode == ModeObserve && !now.IsZero() &&
		(p.ObserveUntil.IsZero() || now.Before(p.ObserveUntil))
}

// relaxable tells whether observe mode may let the denial through.
func relaxable(d Decision) bool {
	switch d.Reason {
	case ReasonNotListed, ReasonPortNotListed, ReasonIPLiteralNotListed, ReasonProtocolMismatch:
		return true
	default:
		return false
	}
}

// publicOnly tells whether nothing but public addresses is known of the
// destination: observe mode never relaxes the guard.
func (p *profile) publicOnly(r *Request) bool {
	if a := r.Destination.addr; a.IsValid() {
		if !r.Local.classify(a, r.listenerPort()).public {
			return false
		}
	} else if classifyName(r.Destination.name) != namePublic {
		return false
	}
	for _, a := range r.Addrs {
		if !r.Local.classify(a.Unmap(), r.listenerPort()).public {
			return false
		}
	}
	return true
}
