package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// pattern is a host of a rule: a canonical name and what of it is meant.
type pattern struct {
	name string
	// exact covers the name itself, below every name under it.
	exact, below bool
}

// String is the pattern as a rule writes it.
func (p pattern) String() string {
	switch {
	case p.exact && p.below:
		return "**." + p.name
	case p.below:
		return "*." + p.name
	default:
		return p.name
	}
}

// matches tells whether name, in canonical form, is covered.
func (p pattern) matches(name string) bool {
	if name == p.name {
		return p.exact
	}
	return p.below && len(name) > len(p.name) &&
		name[len(name)-len(p.name)-1] == '.' && strings.HasSuffix(name, p.name)
}

// covers tells whether p covers every name that q covers.
func (p pattern) covers(q pattern) bool {
	if q.exact && !p.matches(q.name) {
		return false
	}
	return !q.below || p.below && (q.name == p.name || p.matches(q.name))
}

// patternFault is a rule host that can't be used.
type patternFault struct{ msg, hint string }

// parsePattern reads the host of a rule. notice tells what was changed to bring
// it to normal form; it is empty when nothing was.
func parsePattern(s string) (p pattern, notice string, fault *patternFault) {
	if f := patternShape(s); f != nil {
		return pattern{}, "", f
	}
	host := s
	switch {
	case strings.HasPrefix(s, "**."):
		host, p.exact, p.below = s[3:], true, true
	case strings.HasPrefix(s, "*."):
		host, p.below = s[2:], true
	default:
		p.exact = true
	}
	if strings.Contains(host, "*") {
		return pattern{}, "", &patternFault{
			"a wildcard may only stand as the first label",
			"write *.example.com for everything below example.com, **.example.com to include it",
		}
	}
	verb := ""
	if !isASCII(host) {
		a, err := idna.Lookup.ToASCII(strings.TrimSuffix(host, "."))
		if err != nil {
			return pattern{}, "", &patternFault{"this is not a valid international name", "write its xn-- form"}
		}
		host, verb = a, "written as "
	}
	name, addr, err := parseHost(host)
	switch {
	case err != nil:
		return pattern{}, "", &patternFault{"this is not a host name: " + err.Detail, ""}
	case addr.IsValid():
		return pattern{}, "", &patternFault{"this is an address, not a name", "write ip: " + addr.String()}
	}
	p.name = name
	if verb == "" && name != host {
		verb = "read as "
	}
	if verb != "" {
		notice = verb + p.String()
	}
	return p, notice, nil
}

// patternShape recognises what people write instead of a host.
func patternShape(s string) *patternFault {
	switch {
	case s == "":
		return &patternFault{"the host is empty", ""}
	case s == "*" || s == "**":
		return &patternFault{"a bare wildcard is not a host", "network: open opens everything public; better list the hosts"}
	case strings.TrimSpace(s) != s:
		return &patternFault{"the host has spaces around it", "write " + printable(strings.TrimSpace(s))}
	}
	if i := strings.Index(s, "://"); i >= 0 {
		host := s[i+3:]
		if j := strings.IndexAny(host, "/?#"); j >= 0 {
			host = host[:j]
		}
		host = host[strings.LastIndexByte(host, '@')+1:]
		return &patternFault{"a host is wanted, not a URL", "write " + printable(host)}
	}
	if i := strings.IndexAny(s, "/?#"); i >= 0 {
		if _, err := netip.ParsePrefix(s); err == nil {
			return &patternFault{"this is an address range, not a name", "write cidr: " + printable(s)}
		}
		return &patternFault{"a host has no path", "write " + printable(s[:i])}
	}
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return &patternFault{"this is an address, not a name", "write ip: " + a.WithZone("").String()}
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return &patternFault{
			"this is an address with a port, not a name",
			fmt.Sprintf("write ip: %s and ports: [%d]", ap.Addr().WithZone(""), ap.Port()),
		}
	}
	if host, port, ok := strings.Cut(s, ":"); ok {
		if _, err := parsePort(port); err == nil {
			return &patternFault{"the port does not belong to the host", "write host: " + printable(host) + " and ports: [" + port + "]"}
		}
		return &patternFault{"a host has no colon", ""}
	}
	if strings.HasPrefix(s, ".") {
		return &patternFault{"a host does not start with a dot", "write *" + printable(s) + " for everything below, **" + printable(s) + " to include the name itself"}
	}
	if strings.HasPrefix(s, "*") && !strings.HasPrefix(s, "*.") && !strings.HasPrefix(s, "**.") {
		return &patternFault{"a wildcard covers whole labels", "write *." + printable(strings.TrimLeft(s, "*."))}
	}
	return nil
}

// sharedBelow are labels that stand below a provider's own name in the public
// suffix list, such as s3.amazonaws.com and blob.core.windows.net; "x" finds any
// *.name of the list. The list itself can only be asked for one name.
var sharedBelow = []string{"x", "s3", "us-east-1.elb", "blob.core", "blob"}

// coversPublicSuffix tells whether a wildcard reaches across organisations: its
// name is a public suffix (ICANN or private section), such as com, co.uk or
// cloudfront.net, or has one below it, so that anybody can own a name that it
// covers.
func (p pattern) coversPublicSuffix() bool {
	if !p.below {
		return false
	}
	if suffix, _ := publicsuffix.PublicSuffix(p.name); suffix == p.name {
		return true
	}
	for _, label := range sharedBelow {
		below := label + "." + p.name
		if suffix, _ := publicsuffix.PublicSuffix(below); suffix == below {
			return true
		}
	}
	return false
}
