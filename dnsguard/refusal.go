package dnsguard

import (
	"errors"
	"time"

	"sluicegate/policy"
)

// How long clients may keep an answer. A denial is short, so that a change of
// the policy is seen soon, and long enough that a client does not ask again at
// once.
const (
	denialTTL = 5 * time.Second
	minTTL    = 5 * time.Second
	maxTTL    = time.Hour
	maxNoTTL  = 300 * time.Second
)

// maxText bounds the text of an Extended DNS Error: it counts against the
// client's packet size.
const maxText = 64

// noData is an answer without records.
func noData(ttl time.Duration) *reply { return &reply{negative: true, ttl: ttl} }

// refusalFor maps a reason to the wire, as package policy documents it (RFC 8914
// for the error codes). nil is silence. below says that a name under the refused
// one may be allowed: NXDOMAIN would deny it as well (RFC 8020).
func refusalFor(reason policy.Reason, below bool) *reply {
	m := reason.Info().DNS
	r := &reply{ede: m.EDE, ttl: denialTTL}
	switch m.RCode {
	case "DROP":
		return nil
	case "NODATA":
		r.negative = true
	case "NXDOMAIN":
		r.negative = true
		if !below {
			r.rcode = rcodeNXDomain
		}
	case "FORMERR":
		r.rcode = rcodeFormErr
	case "NOTIMP":
		r.rcode = rcodeNotImp
	case "REFUSED":
		r.rcode = rcodeRefused
	default:
		// SERVFAIL, or a reason that can't occur here.
		r.rcode = rcodeServFail
	}
	return r
}

// errorText is the text that goes with an Extended DNS Error: what to look the
// refusal up by. It quotes nothing that came from outside.
func (s *Server) errorText(reason policy.Reason, id string) string {
	text := string(reason) + " " + id
	if s.cfg.HideReason {
		text = id
	}
	return text[:min(len(text), maxText)]
}

// lookupReason is the reason and the Extended DNS Error of a failed look-up.
func lookupReason(err error) (policy.Reason, int) {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason, e.EDE
	}
	// The query's own context ended.
	return policy.ReasonShutdown, 0
}

// clampTTL keeps an upstream's TTL within the bounds of answers to clients.
func clampTTL(ttl, most time.Duration) time.Duration { return max(minTTL, min(ttl, most)) }
