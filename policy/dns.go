package policy

import "strings"

// ParseLabels reads a DNS name as the labels of its wire form (RFC 1035 section
// 3.1), without the root. Labels are compared as they are, never through a text
// form in which a dot could stand inside one. The port of the result is that of
// DNS; it has no part in the decision.
func ParseLabels(labels [][]byte) (Destination, error) {
	var b strings.Builder
	for i, l := range labels {
		if len(l) == 0 {
			return Destination{}, malformed(ReasonMalformedHost, "a label is empty")
		}
		if i > 0 {
			b.WriteByte('.')
		}
		for _, c := range l {
			if c == '.' {
				return Destination{}, malformed(ReasonMalformedHost, "a label has a dot inside")
			}
		}
		b.Write(l)
	}
	name, addr, err := parseHost(b.String())
	switch {
	case err != nil:
		return Destination{}, err
	case addr.IsValid():
		// Four numeric labels are an address to other programs.
		return Destination{}, malformed(ReasonAmbiguousIP, "the name looks like an address")
	}
	return Destination{name: name, port: 53, judged: classifyName(name)}, nil
}

// AllowsBelow tells whether an allow rule of the profile covers a name strictly
// below name. NXDOMAIN for such a name would deny the whole subtree (RFC 8020).
func (s *Snapshot) AllowsBelow(profile, name string) bool {
	if s == nil {
		return false
	}
	p := s.profiles[profile]
	if p == nil {
		return false
	}
	_, ok := p.allow.ancestors[name]
	return ok
}

// addAncestors notes every name above the rule's host, and the host itself for
// a wildcard.
func (rs *ruleSet) addAncestors(p pattern) {
	if rs.ancestors == nil {
		rs.ancestors = map[string]struct{}{}
	}
	if p.below {
		rs.ancestors[p.name] = struct{}{}
	}
	for rest := p.name; ; {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			return
		}
		rest = rest[i+1:]
		rs.ancestors[rest] = struct{}{}
	}
}
