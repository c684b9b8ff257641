package audit

import (
	"bytes"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/idna"
)

// Filter says which records are wanted. An empty field wants all; the zero
// Filter wants every record.
type Filter struct {
	// Since is the earliest time that is wanted.
	Since    time.Time
	Event    Name
	Decision string
	// Reason is also found where observe mode relaxed it ("would").
	Reason  string
	Profile string
	Product string
	Host    HostFilter
}

// Names returns the names of all events of this schema version. The caller owns
// the slice.
func Names() []Name {
	return []Name{
		EgressDenied, EgressObserved, EgressOpened, EgressClosed,
		DNSDenied, DNSObserved, PolicyReloaded, PolicyRejected,
		ServiceStarted, ServiceStopped, AuditRotated, AuditGap,
	}
}

// Decisions returns the values of the "decision" key. The caller owns the slice.
func Decisions() []string {
	return []string{DecisionAllow, DecisionDeny, DecisionWouldDeny, DecisionError}
}

// Match reports whether e is wanted.
func (f *Filter) Match(e *Event) bool {
	return !e.Time.Before(f.Since) &&
		(f.Event == "" || f.Event == e.Event) &&
		(f.Decision == "" || f.Decision == e.Decision) &&
		(f.Reason == "" || f.Reason == e.Reason || f.Reason == e.Would) &&
		(f.Profile == "" || f.Profile == e.Profile) &&
		(f.Product == "" || f.Product == e.Product) &&
		f.Host.Match(e.Dest)
}

// HostFilter is a host or the hosts below a name, as policies write them. The
// zero value wants every destination, also none.
type HostFilter struct {
	name string
	// exact wants the name itself, below what is under it.
	exact, below bool
}

// ParseHost reads a host name or address, *.name for all below it or **.name for
// both. ok is false if s is something else.
func ParseHost(s string) (h HostFilter, ok bool) {
	h.exact = true
	if rest, found := strings.CutPrefix(s, "**."); found {
		s, h.below = rest, true
	} else if rest, found = strings.CutPrefix(s, "*."); found {
		s, h.exact, h.below = rest, false, true
	}

	h.name = strings.ToLower(strings.TrimSuffix(s, "."))
	if addr, err := netip.ParseAddr(strings.Trim(h.name, "[]")); err == nil {
		h.name = addr.Unmap().WithZone("").String()

		return h, !h.below
	}
	if ascii, err := idna.Lookup.ToASCII(h.name); err == nil {
		h.name = ascii
	}

	return h, h.name != "" && !strings.ContainsAny(h.name, "*/:[] ")
}

// Match reports whether a record's dest is wanted. It is taken to be in the form
// in which policies decide about it: lower case, without a trailing dot.
func (h HostFilter) Match(dest string) bool {
	if h.name == "" || dest == h.name {
		return h.name == "" || h.exact
	}

	return h.below && strings.HasSuffix(dest, "."+h.name)
}

// sieve passes over lines that a filter can't want without decoding them, which
// takes most of the time of a long search. It goes by how the log writes a line,
// and lets everything through that is not so.
type sieve struct {
	// since is the Since of the filter as a line has it, nil if there is none.
	since []byte
	// literals are texts that a line must hold.
	literals [][]byte
}

// timeKey is how a line begins, before its time.
const timeKey = `{"time":"`

// newSieve returns the sieve for f.
func newSieve(f *Filter) *sieve {
	s := &sieve{}
	if !f.Since.IsZero() {
		// Rounded down to milliseconds, as times of lines are.
		s.since = f.Since.UTC().AppendFormat(nil, timeLayout)
	}
	for key, value := range map[string]string{
		"event": string(f.Event), "decision": f.Decision, "profile": f.Profile, "product": f.Product,
	} {
		if value != "" {
			literal, _ := appendQuoted([]byte(`"`+key+`":`), value, MaxRecord, MaxRecord)
			s.literals = append(s.literals, literal)
		}
	}
	if h := f.Host; h.name != "" {
		prefix := ""
		if !h.below {
			prefix = `"dest":"`
		} else if !h.exact {
			prefix = "."
		}
		s.literals = append(s.literals, []byte(prefix+h.name+`"`))
	}
	if f.Reason != "" {
		literal, _ := appendQuoted(nil, f.Reason, MaxRecord, MaxRecord)
		s.literals = append(s.literals, literal)
	}

	return s
}

// early reports whether line is from before the time that is wanted.
func (s *sieve) early(line []byte) bool {
	if s.since == nil || !bytes.HasPrefix(line, []byte(timeKey)) || len(line) <= len(timeKey)+len(s.since) {
		return false
	}
	// Times in this form compare as text.
	at := line[len(timeKey):][:len(s.since)]

	return at[len(at)-1] == 'Z' && bytes.Compare(at, s.since) < 0
}

// passes reports whether line may be wanted, apart from its time.
func (s *sieve) passes(line []byte) bool {
	for _, literal := range s.literals {
		if !bytes.Contains(line, literal) {
			return false
		}
	}

	return true
}

// wellFormed reports whether line can be a record by its form: printable ASCII
// and sealed. It looks neither at the hash nor at what the line says.
func wellFormed(line []byte) bool {
	for _, c := range line {
		if c < 0x20 || c > 0x7e {
			return false
		}
	}
	_, ok := splitLine(line)

	return ok
}
