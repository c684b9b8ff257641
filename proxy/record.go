package proxy

import (
	"context"
	"strings"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"
)

// maxResolved is how many addresses a record lists.
const maxResolved = 8

// event fills what all records of a flow share.
func (s *Server) event(f *flow, name audit.Name) audit.Event {
	d := &f.decision
	e := audit.Event{
		Time: s.cfg.testOnlyNow(), Level: audit.LevelInfo, Event: name, ID: audit.NewID(),
		Product: d.Profile.Product, Profile: f.profile, Surface: d.Profile.Surface,
		User: f.peer.User, Proto: string(f.proto), Mode: string(d.Profile.Mode),
		Dest: f.dest.Host(), Port: f.dest.Port(), Flow: f.id, Stage: f.stage,
		Layer: string(d.Layer), MatchedRange: d.Range, HTTPStatus: f.status,
		Policy: &audit.Policy{Digest: f.snapshot.Digest(), Source: s.cfg.PolicySource()},
		Client: &audit.Client{Address: clientAddress(f.client), Port: f.client.Port(), Attribution: "none"},
	}
	if d.Profile.Product == "" {
		e.Product = "unknown"
	}
	if d.Range == policy.RangePublic {
		e.MatchedRange = ""
	}
	if f.peer.UIDKnown {
		uid := f.peer.UID
		e.Client.UID, e.Client.Attribution = &uid, "verified"
	}
	if f.method != "" || f.targetRaw != "" {
		e.Request = &audit.Request{Method: f.method, Scheme: f.scheme, TargetRaw: f.targetRaw}
	}
	if f.targetCut {
		e.Truncated = append(e.Truncated, "request.target_raw")
	}
	if d.Rule != nil {
		e.Rule = &audit.Rule{ID: d.Rule.ID, File: d.Rule.File, Line: d.Rule.Line}
	}
	f.fillHello(&e)
	if f.server.IsValid() {
		e.Server = &audit.Server{Address: f.server.Addr().String(), Port: f.server.Port()}
	}
	for i, a := range f.resolved {
		if i == maxResolved {
			e.ResolvedTotal = len(f.resolved)
			break
		}
		e.Resolved = append(e.Resolved, audit.Address{IP: a.Unmap().String(), Class: policy.ClassifyAddr(a).Range})
	}
	return e
}

// maxALPNName is how much a record keeps of a protocol's name, in bytes.
const maxALPNName = 32

// fillHello says what the client of a tunnel sent first.
func (f *flow) fillHello(e *audit.Event) {
	h := f.hello
	if h == nil {
		return
	}
	var cut bool
	if e.SNI, cut = audit.EscapeRaw(h.name, maxTarget); cut {
		e.Truncated = append(e.Truncated, "sni")
	}
	for _, p := range h.alpn {
		name, _ := audit.EscapeRaw([]byte(p), maxALPNName)
		e.ALPN = append(e.ALPN, name)
	}
	e.ECH = h.ech
}

// record writes a record, whatever has become of the request meanwhile.
func (s *Server) record(e audit.Event) error {
	return s.cfg.Recorder.Record(context.Background(), e)
}

// recordDenied writes the record of a refusal and returns its id. The refusal
// must not be sent when it returns an error.
func (s *Server) recordDenied(f *flow, reason policy.Reason, detail string) (string, error) {
	info := reason.Info()
	e := s.event(f, audit.EgressDenied)
	e.Level, e.Decision, e.Reason = audit.LevelWarn, audit.DecisionDeny, string(reason)
	if info.Class == policy.ClassMalformed {
		e.Decision = audit.DecisionError
	}
	e.Msg = deniedMessage(f, info, detail)
	e.Suggestion = suggestion(reason)
	return e.ID, s.record(e)
}

// deniedMessage is the record's sentence for people.
func deniedMessage(f *flow, info policy.Info, detail string) string {
	who := f.profile
	if who == "" {
		who = "unknown"
	}
	what := f.dest.String()
	if what == "" {
		what = "a request"
	}
	if detail == "" {
		detail = info.Meaning
	}
	return "refused " + what + " for " + who + ": " + strings.TrimSuffix(detail, ".")
}

// suggestion is a stable code for what could be done about a refusal.
func suggestion(r policy.Reason) string {
	switch r {
	case policy.ReasonNotListed, policy.ReasonIPLiteralNotListed:
		return "add_rule"
	case policy.ReasonPortNotListed:
		return "add_port"
	case policy.ReasonDestPrivate, policy.ReasonLocalName:
		return "add_grant"
	case policy.ReasonDenyRule:
		return "review_deny_rule"
	default:
		return ""
	}
}

// recordFailed writes the end of a request that failed after it was allowed.
func (s *Server) recordFailed(f *flow, reason policy.Reason) (string, error) {
	e := s.event(f, audit.EgressClosed)
	e.Level, e.Decision, e.Reason = audit.LevelWarn, audit.DecisionError, string(reason)
	info := reason.Info()
	e.Msg = "failed " + f.dest.String() + " for " + f.profile + ": " + strings.TrimSuffix(info.Meaning, ".")
	e.End = &audit.End{Who: failedBy(reason), Why: string(reason)}
	s.fillEnd(f, &e)
	return e.ID, s.record(e)
}

func failedBy(r policy.Reason) string {
	switch r {
	case policy.ReasonClientClosed:
		return "client"
	case policy.ReasonShutdown, policy.ReasonRevoked, policy.ReasonInternal, policy.ReasonAuditUnavailable:
		return "gate"
	default:
		return "server"
	}
}

func (s *Server) fillEnd(f *flow, e *audit.Event) {
	in, out := f.in.Load(), f.out.Load()
	ms := float64(e.Time.Sub(f.started).Microseconds()) / float64(time.Millisecond/time.Microsecond)
	e.BytesIn, e.BytesOut, e.DurationMS = &in, &out, &ms
}

// recordOpened writes that a tunnel is let through; traffic that only observe
// mode allows is always recorded, by its own event.
func (s *Server) recordOpened(f *flow) error {
	d := &f.decision
	if s.cfg.Allowed != AllowedAll || d.Observed() {
		return nil
	}
	e := s.event(f, audit.EgressOpened)
	e.Decision, e.Reason = audit.DecisionAllow, string(d.Reason)
	e.Msg = "opened " + f.dest.String() + " for " + f.profile
	return s.record(e)
}

// recordObserved writes that only observe mode lets the request go on. It is
// called before the look-up, which is the first that leaves the machine; the
// addresses may still be refused.
func (s *Server) recordObserved(f *flow) error {
	d := &f.decision
	if !d.Observed() {
		return nil
	}
	e := s.event(f, audit.EgressObserved)
	e.Level = audit.LevelWarn
	e.Decision, e.Reason, e.Would = audit.DecisionWouldDeny, string(d.Reason), string(d.Would)
	e.Msg = "let through " + f.dest.String() + " for " + f.profile + " in observe mode; would be refused: " +
		strings.TrimSuffix(d.Would.Info().Meaning, ".")
	e.Suggestion = suggestion(d.Would)
	return s.record(e)
}

// recordClosed writes the end of a tunnel or of a forwarded request.
func (s *Server) recordClosed(f *flow, who string, why policy.Reason) {
	if s.cfg.Allowed == AllowedOff {
		return
	}
	d := &f.decision
	e := s.event(f, audit.EgressClosed)
	e.Decision, e.Reason = audit.DecisionAllow, string(d.Reason)
	if d.Observed() {
		e.Decision, e.Would = audit.DecisionWouldDeny, string(d.Would)
	}
	e.Msg = "closed " + f.dest.String() + " for " + f.profile
	e.End = &audit.End{Who: who, Why: string(why)}
	s.fillEnd(f, &e)
	if err := s.record(e); err != nil {
		s.log.Error("audit record lost", "event", e.Event, "flow", f.id, "error", err)
	}
}
