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
func (s *Snapshot) Decide(r Request) (d Decision) {
	// Below, a decision is written where the caller reads it: it is large, and
	// copying it through every step would cost more than the look-up.
	d.Digest = s.Digest()
	if s == nil {
		d.builtin(ReasonNoPolicy)
		return d
	}
	p := s.profiles[r.Profile]
	if p == nil {
		d.builtin(ReasonUnknownProfile)
		return d
	}
	d.Profile = p.info
	s.judge(p, &r, &d)
	return d
}

func (s *Snapshot) judge(p *profile, r *Request, d *Decision) {
	switch {
	case !r.Entitled:
		d.builtin(ReasonBadIdentity)
		return
	case !r.Destination.IsValid():
		d.builtin(ReasonMalformed)
		return
	case p.info.Network == NetworkBlocked:
		d.Reason, d.Layer = ReasonModeBlocked, LayerProduct
		return
	}
	if p.guardDestination(r, d) || p.guardAddrs(r, d) ||
		denied(&s.global, LayerGlobal, r, d) || denied(&p.deny, LayerProduct, r, d) {
		return
	}
	p.allowed(r, d)
	if !d.Allowed() {
		p.soften(r, d)
	}
	if r.Hello != nil && d.Allowed() {
		s.judgeHello(p, r, d)
	}
}

// soften turns a refusal into the one that says most, or lets it through in
// observe mode.
func (p *profile) soften(r *Request, d *Decision) {
	if d.Rule == nil && p.allow.expiring {
		p.lately(r, d)
	}
	if p.info.observing(r.Now) && relaxable(d.Reason) && p.publicOnly(r) {
		d.Action, d.Would, d.Reason = ActionAllow, d.Reason, ReasonObserve
	}
}

// builtin refuses without a rule.
func (d *Decision) builtin(reason Reason) { d.Reason, d.Layer = reason, LayerBuiltin }

// reset forgets what was found so far and starts anew.
func (d *Decision) reset(a Action, reason Reason) {
	*d = Decision{Profile: d.Profile, Digest: d.Digest, Action: a, Reason: reason, Layer: LayerProduct}
}

// denied looks for a deny rule that covers the destination or, once they are
// known, one of its addresses.
func denied(rs *ruleSet, layer Layer, r *Request, d *Decision) bool {
	if rs.count == 0 {
		return false
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
		rs.forName(name, r.Now, func(e entry) bool {
			if e.rule.deniesPort(port, r.Proto) && !e.rule.excepted(name) {
				hit = e.rule
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
		return false
	}
	d.Reason, d.Layer, d.Rule = ReasonDenyRule, layer, hit
	return true
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
func (p *profile) allowed(r *Request, d *Decision) {
	if r.Destination.addr.IsValid() {
		p.allowedLiteral(r, d)
	} else {
		p.allowedName(r, d)
	}
}

func (p *profile) allowedLiteral(r *Request, d *Decision) {
	a, port := r.Destination.addr, r.Destination.port
	d.Reason, d.Layer = ReasonIPLiteralNotListed, LayerProduct
	p.allow.forAddr(a, r.Now, func(rule *Rule) bool {
		if !rule.allowsPort(port, r.Proto) {
			if d.Reason != ReasonProtocolMismatch {
				d.Reason, d.Rule = portReason(rule, r), rule
			}
			return true
		}
		d.Action, d.Reason, d.Rule = ActionAllow, ReasonRule, rule
		d.TLSAny, d.ECHRefused = rule.tlsAny, rule.echRefused
		return false
	})
	clearTextToTLS(r, d)
	switch {
	case d.Allowed():
		if c := r.Local.classify(a, r.listenerPort()); !c.public {
			d.Range, d.Addr = c.Range, a
		}
	case d.Reason == ReasonProtocolMismatch:
	default:
		p.openNetwork(r, d)
	}
}

func (p *profile) allowedName(r *Request, d *Decision) {
	// An always-local name is opened by resolves_to alone, whatever it resolves
	// to and however open the network is.
	local := r.Destination.kind() != namePublic
	d.Reason, d.Layer = ReasonNotListed, LayerProduct
	p.allow.forName(r.Destination.name, r.Now, func(e entry) bool {
		switch {
		case local && (e.plain || len(e.rule.resolvesTo) == 0):
			return true
		case d.Rule == nil:
			tryRule(e, r, d)
		default:
			tryNextRule(e, r, d)
		}
		return !d.Allowed()
	})
	if d.Allowed() || d.Reason == ReasonProtocolMismatch || local {
		return
	}
	p.openNetwork(r, d)
}

// lately turns the refusal of what no rule covers into the one that says so
// when a rule did until it expired.
func (p *profile) lately(r *Request, d *Decision) {
	then := *r
	then.Now = beginning
	var was Decision
	if p.allowed(&then, &was); was.Allowed() && was.Rule != nil {
		d.Reason, d.Rule = ReasonRuleExpired, was.Rule
	}
}

// tryRule judges the request by the first rule that covers the name.
func tryRule(e entry, r *Request, d *Decision) {
	d.Reason, d.Rule = ReasonRule, e.rule
	if !e.allowsPort(r.Destination.port, r.Proto) {
		d.Reason = portReason(e.rule, r)
		return
	}
	d.Action = ActionAllow
	if !e.plain {
		d.TLSAny, d.ECHRefused = e.rule.tlsAny, e.rule.echRefused
	}
	if clearTextToTLS(r, d); !d.Allowed() || len(r.Addrs) == 0 {
		return
	}
	resolvesTo := e.resolvesTo()
	if r.Local.judgeAddrs(r, resolvesTo, d) {
		return
	}
	if len(resolvesTo) > 0 {
		d.Addr = r.Addrs[0].Unmap()
		d.Range = r.Local.classify(d.Addr, r.listenerPort()).Range
	}
}

// tryNextRule judges by a further rule, after one that did not allow. Of several
// refusals the one that came furthest says most.
func tryNextRule(e entry, r *Request, d *Decision) {
	var next Decision
	next.Layer = LayerProduct
	if tryRule(e, r, &next); next.Allowed() || d.Reason == ReasonPortNotListed {
		next.Profile, next.Digest = d.Profile, d.Digest
		*d = next
	}
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
func clearTextToTLS(r *Request, d *Decision) {
	if r.Proto == ProtoHTTP && r.Destination.port == 443 && d.Allowed() {
		d.Action, d.Reason = ActionDeny, ReasonProtocolMismatch
	}
}

// openNetwork is the default of an open network for a request that no rule
// allowed; d is what the rules said.
func (p *profile) openNetwork(r *Request, d *Decision) {
	if p.info.Network != NetworkOpen {
		return
	}
	port := r.Destination.port
	switch {
	case r.Proto == ProtoDNS, port == 80, port == 443 && r.Proto != ProtoHTTP:
		d.reset(ActionAllow, ReasonOpenNetwork)
		r.Local.judgeAddrs(r, nil, d)
	case port == 443:
		d.Reason = ReasonProtocolMismatch
	default:
		d.Reason = ReasonPortNotListed
	}
}

// observing tells whether the profile only records denials at that time.
func (p *Profile) observing(now time.Time) bool {
	return p.Mode == ModeObserve && !now.IsZero() &&
		(p.ObserveUntil.IsZero() || now.Before(p.ObserveUntil))
}

// relaxable tells whether observe mode may let the denial through.
func relaxable(reason Reason) bool {
	switch reason {
	case ReasonNotListed, ReasonPortNotListed, ReasonIPLiteralNotListed, ReasonProtocolMismatch,
		ReasonSNIMismatch, ReasonSNIMissing, ReasonSNIInvalid:
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
	} else if r.Destination.kind() != namePublic {
		return false
	}
	for _, a := range r.Addrs {
		if !r.Local.classify(a.Unmap(), r.listenerPort()).public {
			return false
		}
	}
	return true
}
