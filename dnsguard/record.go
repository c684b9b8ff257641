package dnsguard

import (
	"bytes"
	"context"
	"strings"

	"sluicegate/audit"
	"sluicegate/policy"
)

// Bounds of a record, as those of package proxy.
const (
	maxResolved = 8
	maxTarget   = 512
)

// event fills what all records of a flow share.
func (s *Server) event(f *flow, name audit.Name) audit.Event {
	d := &f.decision
	e := audit.Event{
		Time: s.cfg.testOnlyNow(), Level: audit.LevelWarn, Event: name, ID: audit.NewID(),
		Product: d.Profile.Product, Profile: f.profile, Surface: d.Profile.Surface,
		User: f.client.peer.User, Proto: string(policy.ProtoDNS), Mode: string(d.Profile.Mode),
		Dest: f.dest.Host(), Flow: f.id(), Stage: "dns", Layer: string(d.Layer), MatchedRange: d.Range,
		Policy: &audit.Policy{Digest: f.snapshot.Digest(), Source: s.cfg.PolicySource()},
		Client: &audit.Client{
			Address: f.client.addr.Addr().String(), Port: f.client.addr.Port(), Attribution: "none",
		},
	}
	if d.Profile.Product == "" {
		e.Product = "unknown"
	}
	if d.Range == policy.RangePublic {
		e.MatchedRange = ""
	}
	if f.client.peer.UIDKnown {
		uid := f.client.peer.UID
		e.Client.UID, e.Client.Attribution = &uid, "verified"
	}
	if d.Rule != nil {
		e.Rule = &audit.Rule{ID: d.Rule.ID, File: d.Rule.File, Line: d.Rule.Line}
	}
	for i, a := range f.resolved {
		if i == maxResolved {
			e.ResolvedTotal = len(f.resolved)
			break
		}
		e.Resolved = append(e.Resolved, audit.Address{IP: a.Unmap().String(), Class: policy.ClassifyAddr(a).Range})
	}
	fillQuestion(&e, &f.query)
	return e
}

// fillQuestion puts the question into the record as it was sent, "NAME CLASS
// TYPE", escaped.
func fillQuestion(e *audit.Event, q *query) {
	if !q.asked {
		return
	}
	suffix := ". " + className(q.class) + " " + typeName(q.kind)
	var b strings.Builder
	for i, label := range labels(q.name) {
		if i > 0 {
			b.WriteByte('.')
		}
		// A dot inside a label must not look like one between two.
		for j, part := range bytes.Split(label, []byte(".")) {
			if j > 0 {
				b.WriteString(`\x2e`)
			}
			text, _ := audit.EscapeRaw(part, maxTarget)
			b.WriteString(text)
		}
	}
	name := b.String()
	if keep := maxTarget - len(suffix); len(name) > keep {
		// Escaping may make it four times as long.
		name = name[:strings.LastIndexAny(name[:keep], `\.`)]
		e.Truncated = append(e.Truncated, "request.target_raw")
	}
	e.Request = &audit.Request{TargetRaw: name + suffix}
	e.DNS = &audit.DNS{Question: &audit.Question{Name: e.Dest, Type: typeName(q.kind), Class: className(q.class)}}
}

// fillReply puts what the client is about to be told into the record. nil is
// silence.
func fillReply(e *audit.Event, q *query, r *reply) {
	if r == nil {
		return
	}
	if e.DNS == nil {
		e.DNS = &audit.DNS{}
	}
	if e.DNS.RCode = rcodeName(r.rcode); r.rcode == 0 && r.negative {
		e.DNS.RCode = "NODATA"
	}
	if q.edns {
		e.DNS.EDE = r.ede
	}
}

// recordDenied writes the record of a refusal or failure that r tells the client
// of, and returns its id. The answer must not be sent when it returns an error.
func (s *Server) recordDenied(ctx context.Context, f *flow, reason policy.Reason, detail string, r *reply) (string, error) {
	info := reason.Info()
	e := s.event(f, audit.DNSDenied)
	e.Decision, e.Reason = audit.DecisionDeny, string(reason)
	verb := "refused "
	switch info.Class {
	case policy.ClassMalformed:
		e.Decision = audit.DecisionError
	case policy.ClassUpstream, policy.ClassClose:
		e.Decision, verb = audit.DecisionError, "failed "
	}
	if detail == "" {
		detail = info.Meaning
	}
	e.Msg = verb + f.what() + ": " + strings.TrimSuffix(detail, ".")
	e.Suggestion = suggestion(reason)
	fillReply(&e, &f.query, r)
	return e.ID, s.cfg.Recorder.Record(ctx, e)
}

// recordObserved writes that observe mode lets the query through.
func (s *Server) recordObserved(ctx context.Context, f *flow) error {
	d := &f.decision
	e := s.event(f, audit.DNSObserved)
	e.Decision, e.Reason, e.Would = audit.DecisionWouldDeny, string(d.Reason), string(d.Would)
	e.Msg = "let through " + f.what() + " in observe mode; would be refused: " +
		strings.TrimSuffix(d.Would.Info().Meaning, ".")
	e.Suggestion = suggestion(d.Would)
	return s.cfg.Recorder.Record(ctx, e)
}

// what says in words what was asked and for whom.
func (f *flow) what() string {
	name := f.dest.Host()
	if name == "" {
		name = "a query"
	} else if f.query.asked {
		name += " " + typeName(f.query.kind)
	}
	return name + " for " + f.profile
}

// suggestion is a stable code for what could be done about a refusal, as in
// package proxy.
func suggestion(r policy.Reason) string {
	switch r {
	case policy.ReasonNotListed:
		return "add_rule"
	case policy.ReasonDestPrivate, policy.ReasonLocalName:
		return "add_grant"
	case policy.ReasonDenyRule:
		return "review_deny_rule"
	default:
		return ""
	}
}
