package dnsguard

import (
	"context"
	"errors"
	"net/netip"
	"runtime/debug"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"
)

// patience is how long an allowed name may take. Clients wait for 5 s (glibc,
// musl, Go) and should hear of a failure before they give up.
const patience = 4 * time.Second

// client is who sent a query, and how.
type client struct {
	addr   netip.AddrPort
	peer   Peer
	stream bool
}

// flow is one query, filled along the way and turned into a record if it is
// refused. It belongs to the goroutine that serves it.
type flow struct {
	flowID   string
	snapshot *policy.Snapshot
	profile  string
	client   client
	query    query
	dest     policy.Destination
	decision policy.Decision
	resolved []netip.Addr
}

// id joins the records of the flow; most flows have none.
func (f *flow) id() string {
	if f.flowID == "" {
		f.flowID = audit.NewID()
	}
	return f.flowID
}

// newFlow starts a flow on the policy of the moment.
func (p *profileServer) newFlow(c client) *flow {
	f := &flow{snapshot: p.s.cfg.Snapshot(), profile: p.name, client: c}
	f.decision.Layer = policy.LayerBuiltin
	f.decision.Profile, _ = f.snapshot.Profile(p.name)
	return f
}

// serve answers one packet that has a header and is no response. nil is silence;
// sane says that the packet was a query. With busy it is told to come again.
func (p *profileServer) serve(ctx context.Context, c client, raw []byte, busy bool) (out []byte, sane bool) {
	p.s.queries.Add(1)
	f := &flow{profile: p.name, client: c}
	defer func() {
		if v := recover(); v != nil {
			p.s.log.Error("panic while answering a query", "profile", p.name, "panic", v, "stack", string(debug.Stack()))
			out, sane = p.failed(ctx, f, raw), false
		}
	}()
	*f = *p.newFlow(c)
	q, fault := parseQuery(raw)
	f.query = q
	var r *reply
	switch {
	case fault != nil:
		r = p.refuseFault(ctx, f, fault)
	case busy:
		r = p.refuse(ctx, f, policy.ReasonLimit, "")
	default:
		r = p.judge(ctx, f)
	}
	if r == nil {
		return nil, false
	}
	out, err := packReply(&f.query, r, f.room())
	if err != nil {
		p.s.log.Error("writing an answer", "profile", p.name, "error", err)
		return p.failed(ctx, f, raw), false
	}
	return out, fault == nil
}

// failed records and answers a fault of ours. It can't fail itself.
func (p *profileServer) failed(ctx context.Context, f *flow, raw []byte) (out []byte) {
	defer func() {
		if recover() != nil {
			out = minimalFailure(raw)
		}
	}()
	r := p.refuse(ctx, f, policy.ReasonInternal, "")
	out, err := packReply(&f.query, r, f.room())
	if err != nil {
		return minimalFailure(raw)
	}
	return out
}

// room is how large the answer may be.
func (f *flow) room() int {
	if f.client.stream {
		return maxMessage
	}
	return f.query.limit()
}

// noteBroken records a packet that is too short to be answered, up to the same
// rate.
func (p *profileServer) noteBroken(ctx context.Context, c client) {
	if !p.broken.take(p.s.cfg.testOnlyNow()) {
		return
	}
	f := p.newFlow(c)
	if _, err := p.s.recordDenied(ctx, f, policy.ReasonMalformed, "the packet is shorter than a header", nil); err != nil {
		p.s.log.Error("audit record lost", "flow", f.id(), "error", err)
	}
}

// maxMessage is the largest message over TCP, RFC 1035 section 4.2.2.
const maxMessage = 1<<16 - 1

// refuseFault answers a packet that is no query. Broken ones are answered and
// recorded up to a rate and passed over beyond it: no program in order sends
// them, and they must not fill the log.
func (p *profileServer) refuseFault(ctx context.Context, f *flow, fault *fault) *reply {
	if fault.reason == policy.ReasonMalformed && !p.broken.take(p.s.cfg.testOnlyNow()) {
		p.s.dropped.Add(1)
		return nil
	}
	r := refusalFor(fault.reason, f.allowsBelow(fault.reason))
	r.rcode = fault.rcode
	return p.refuseWith(ctx, f, fault.reason, fault.detail, r)
}

// refuse records a refusal and returns what the client is told. When the record
// can't be written the client is told that instead.
func (p *profileServer) refuse(ctx context.Context, f *flow, reason policy.Reason, detail string) *reply {
	return p.refuseWith(ctx, f, reason, detail, refusalFor(reason, f.allowsBelow(reason)))
}

// allowsBelow tells whether a name under the refused one may be allowed, for
// somebody who may know.
func (f *flow) allowsBelow(reason policy.Reason) bool {
	switch reason {
	case policy.ReasonBadIdentity, policy.ReasonModeBlocked:
		return false
	case policy.ReasonDenyRule:
		// The rule may name this name alone, and what is not listed passes.
		if f.decision.Profile.Network == policy.NetworkOpen || f.decision.Profile.Mode == policy.ModeObserve {
			return true
		}
	}
	return f.snapshot.AllowsBelow(f.profile, f.dest.Name())
}

func (p *profileServer) refuseWith(ctx context.Context, f *flow, reason policy.Reason, detail string, r *reply) *reply {
	p.s.refused.Add(1)
	id, err := p.s.recordDenied(ctx, f, reason, detail, r)
	if err != nil {
		p.s.log.Error("audit record lost", "flow", f.id(), "reason", reason, "error", err)
		return refusalFor(policy.ReasonAuditUnavailable, false)
	}
	if r != nil && r.ede != 0 {
		r.text = p.s.errorText(reason, id)
	}
	return r
}

// refuseHere is a refusal that no rule decided.
func (p *profileServer) refuseHere(ctx context.Context, f *flow, reason policy.Reason, r *reply) *reply {
	f.decision = policy.Decision{Reason: reason, Layer: policy.LayerBuiltin, Profile: f.decision.Profile, Digest: f.decision.Digest}
	return p.refuseWith(ctx, f, reason, "", r)
}

// decide asks the policy about the flow with what is known so far.
func (p *profileServer) decide(f *flow, addrs []netip.Addr) policy.Decision {
	return f.snapshot.Decide(policy.Request{
		Profile: f.profile, Entitled: f.client.peer.Entitled, Destination: f.dest, Proto: policy.ProtoDNS,
		Addrs: addrs, Local: p.s.cfg.Local(), Now: p.s.cfg.testOnlyNow(),
	})
}

// judge answers a well-formed query. Nothing of it goes upstream before the
// verdict on its name.
func (p *profileServer) judge(ctx context.Context, f *flow) *reply {
	q := &f.query
	var bad error
	f.dest, bad = policy.ParseLabels(labels(q.name))
	if q.class != classIN {
		return p.refuseHere(ctx, f, policy.ReasonQClassNotAllowed, refusalFor(policy.ReasonQClassNotAllowed, false))
	}
	f.decision = p.decide(f, nil)
	switch f.decision.Reason {
	case policy.ReasonNoPolicy, policy.ReasonUnknownProfile, policy.ReasonBadIdentity, policy.ReasonModeBlocked:
		return p.refuse(ctx, f, f.decision.Reason, f.decision.Detail)
	}
	if len(q.name) == 0 {
		// The root exists and has no address.
		return p.refuseSpecial(ctx, f, special{reason: policy.ReasonSpecialUse, nodata: true})
	}
	var parse *policy.ParseError
	if errors.As(bad, &parse) {
		return p.refuse(ctx, f, parse.Reason, parse.Detail)
	}
	if s, ok := specialName(f.dest.Name()); ok {
		return p.refuseSpecial(ctx, f, s)
	}
	if !f.decision.Allowed() {
		return p.refuse(ctx, f, f.decision.Reason, f.decision.Detail)
	}
	if q.kind != typeA && q.kind != typeAAAA {
		return p.refuseHere(ctx, f, policy.ReasonQTypeNotAllowed, refusalFor(policy.ReasonQTypeNotAllowed, false))
	}
	if f.dest.Name() == ipv4Only {
		return ipv4OnlyAnswer(q.kind)
	}
	return p.resolve(ctx, f)
}

func (p *profileServer) refuseSpecial(ctx context.Context, f *flow, s special) *reply {
	return p.refuseHere(ctx, f, s.reason, refusalFor(s.reason, s.nodata))
}

// resolve answers an allowed name.
func (p *profileServer) resolve(ctx context.Context, f *flow) *reply {
	if !p.s.mayPass() {
		return p.refuse(ctx, f, policy.ReasonAuditUnavailable, "")
	}
	if f.decision.Observed() {
		if err := p.s.recordObserved(ctx, f); err != nil {
			p.s.log.Error("audit record lost", "flow", f.id(), "error", err)
			if !p.s.cfg.AllowUnrecorded {
				return refusalFor(policy.ReasonAuditUnavailable, false)
			}
		}
	}
	select {
	case p.lookups <- struct{}{}:
		defer func() { <-p.lookups }()
	default:
		return p.refuse(ctx, f, policy.ReasonLimit, "")
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a, err := p.s.cfg.Resolver.Resolve(wait, f.dest.Name(), Type(f.query.kind))
	if err != nil {
		return p.refuseLookup(ctx, f, err)
	}
	return p.judgeAnswer(ctx, f, a)
}

// refuseLookup answers a look-up that failed, or whose chain leads astray.
func (p *profileServer) refuseLookup(ctx context.Context, f *flow, err error) *reply {
	reason, ede := lookupReason(err)
	r := refusalFor(reason, false)
	if ede != 0 {
		r.ede = ede
	}
	p.s.log.Debug("looking up a name", "flow", f.id(), "error", err)
	return p.refuseHere(ctx, f, reason, r)
}

// judgeAnswer judges every address of the answer together: one that is refused
// refuses them all.
func (p *profileServer) judgeAnswer(ctx context.Context, f *flow, a Answer) *reply {
	if len(a.Addrs) > 0 {
		f.resolved = a.Addrs
		f.decision = p.decide(f, a.Addrs)
		if !f.decision.Allowed() {
			r := refusalFor(f.decision.Reason, true)
			return p.refuseWith(ctx, f, f.decision.Reason, f.decision.Detail, r)
		}
	}
	r := &reply{chain: a.Chain}
	for _, addr := range a.Addrs {
		// An IPv4-mapped address is judged, but it is no answer.
		if addr.Is4() == (f.query.kind == typeA) {
			r.addrs = append(r.addrs, addr)
		}
	}
	if len(r.addrs) > 0 {
		r.ttl = clampTTL(a.TTL, maxTTL)
		return r
	}
	r.negative, r.ttl = true, clampTTL(a.TTL, maxNoTTL)
	if a.NoName {
		r.rcode = rcodeNXDomain
	}
	return r
}
