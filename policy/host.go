package policy

import (
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// Limits of a host name, RFC 1035 section 2.3.4, without the trailing dot.
const (
	maxName  = 253
	maxLabel = 63
)

// ParseError is a destination that could not be read. Reason is one of the
// malformed reasons; Detail is a constant text that quotes nothing of the input.
type ParseError struct {
	Reason Reason
	Detail string
}

// Error returns the reason and the detail.
func (e *ParseError) Error() string { return string(e.Reason) + ": " + e.Detail }

func malformed(r Reason, detail string) *ParseError { return &ParseError{Reason: r, Detail: detail} }

// parseHost reads a host without brackets: a name or a dotted-decimal IPv4
// address. A name comes back in lower case and without its trailing dot. It is
// the only place where a string becomes a name, for requests and for rules.
//
// The grammar is stricter than DNS on purpose (letters, digits, hyphen and
// underscore in labels of 1 to 63 bytes) and refuses every name whose last
// label looks like a number (URL Standard, "ends in a number checker"), because
// programs disagree on what such a name means.
func parseHost(s string) (name string, addr netip.Addr, err *ParseError) {
	if s == "" {
		return "", netip.Addr{}, malformed(ReasonMalformedHost, "the host is empty")
	}
	dotted := s[len(s)-1] == '.'
	bare := s
	if dotted {
		bare = s[:len(s)-1]
	}
	if len(bare) > maxName {
		return "", netip.Addr{}, malformed(ReasonMalformedHost, "the host is longer than 253 bytes")
	}
	upper, puny := false, false
	start := 0
	for i := 0; i <= len(bare); i++ {
		if i < len(bare) && bare[i] != '.' {
			c := bare[i]
			switch {
			case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
			case c >= 'A' && c <= 'Z':
				upper = true
			default:
				return "", netip.Addr{}, malformed(ReasonMalformedHost, "the host has a byte that no host name has")
			}
			continue
		}
		n := i - start
		if n == 0 {
			return "", netip.Addr{}, malformed(ReasonMalformedHost, "the host has an empty label")
		}
		if n > maxLabel {
			return "", netip.Addr{}, malformed(ReasonMalformedHost, "a label is longer than 63 bytes")
		}
		if n >= 4 && bare[start+2] == '-' && bare[start+3] == '-' && bare[start]|0x20 == 'x' && bare[start+1]|0x20 == 'n' {
			puny = true
		}
		start = i + 1
	}
	last := bare[strings.LastIndexByte(bare, '.')+1:]
	if looksNumeric(last) {
		if !dotted {
			// ParseAddr takes only four decimal parts without leading zeros.
			if a, perr := netip.ParseAddr(bare); perr == nil {
				return "", a, nil
			}
		}
		return "", netip.Addr{}, malformed(ReasonAmbiguousIP, "the host looks like an address that programs read in different ways")
	}
	name = bare
	if upper {
		name = strings.ToLower(bare)
	}
	if puny && !validALabels(name) {
		return "", netip.Addr{}, malformed(ReasonMalformedHost, "the host has an xn-- label that encodes no valid name")
	}
	return name, netip.Addr{}, nil
}

// looksNumeric tells whether a resolver could read label as the last part of
// an IPv4 address: decimal, octal or hexadecimal, "0x" alone included.
func looksNumeric(label string) bool {
	if len(label) >= 2 && label[0] == '0' && label[1]|0x20 == 'x' {
		for i := 2; i < len(label); i++ {
			c := label[i] | 0x20
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
		return true
	}
	for i := 0; i < len(label); i++ {
		if label[i] < '0' || label[i] > '9' {
			return false
		}
	}
	return true
}

// validALabels tells whether every xn-- label of a lower-case name decodes to a
// name and encodes back to the same bytes (RFC 5891 section 4.4). A label that
// decodes to plain ASCII would be a second spelling of another name.
func validALabels(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if !strings.HasPrefix(label, "xn--") {
			continue
		}
		u, err := idna.Lookup.ToUnicode(label)
		if err != nil || isASCII(u) {
			return false
		}
		back, err := idna.Lookup.ToASCII(u)
		if err != nil || back != label {
			return false
		}
	}
	return true
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// parseIPv6 reads what stands between brackets: an IPv6 address without a zone.
// An IPv4-mapped address comes back as IPv4, so that no later step can see two
// forms of one address.
func parseIPv6(s string) (netip.Addr, *ParseError) {
	if !strings.Contains(s, ":") {
		return netip.Addr{}, malformed(ReasonMalformedHost, "brackets may hold only an IPv6 address")
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, malformed(ReasonMalformedHost, "brackets may hold only an IPv6 address")
	}
	if a.Zone() != "" {
		return netip.Addr{}, malformed(ReasonMalformedHost, "an address with a zone is never a valid destination")
	}
	return a.Unmap(), nil
}
