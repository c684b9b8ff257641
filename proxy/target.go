package proxy

import (
	"errors"
	"net/url"
	"strings"

	"sluicegate/audit"
	"sluicegate/policy"
)

// readTarget reads the destination from the target. It is the only input to the
// verdict.
func (h *head) readTarget() *fault {
	var err error
	if h.isConnect() {
		h.dest, err = policy.ParseAuthority(h.target)
	} else {
		h.dest, err = policy.ParseTarget(h.target)
	}
	var bad *policy.ParseError
	if errors.As(err, &bad) {
		h.dest = secureDest(h.target)
		return faultOf(bad.Reason, bad.Detail)
	}
	if h.isConnect() {
		return nil
	}
	if _, err := url.ParseRequestURI(h.target); err != nil {
		return faultOf(policy.ReasonMalformedTarget, "the path has a percent sign that encodes nothing")
	}
	return nil
}

// secureDest is the destination of an https URL, which is refused in absolute
// form whatever its host, but worth recording with it.
func secureDest(target string) policy.Destination {
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || !strings.EqualFold(scheme, "https") {
		return policy.Destination{}
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#\\"); i >= 0 {
		authority = rest[:i]
	}
	return authorityOr(authority, "443")
}

// authorityOr reads host:port or, without a port, host with the port given; the
// zero Destination if it is neither.
func authorityOr(s, port string) policy.Destination {
	if d, err := policy.ParseAuthority(s); err == nil {
		return d
	}
	d, _ := policy.ParseAuthority(s + ":" + port)
	return d
}

// maxTarget is how much of a raw target a record keeps, in bytes.
const maxTarget = 512

// rawTarget makes a request target fit for the record: no credentials, no
// query, no path, control bytes escaped. What an attacker put into the host
// stays readable. cut tells that it was too long.
func rawTarget(target string) (s string, cut bool) {
	scheme, rest := "", target
	if s := schemeOf(target); s != "" {
		scheme, rest = target[:len(s)+len("://")], target[len(s)+len("://"):]
	}
	authority := rest
	// Behind a line that ended badly there may be header fields.
	if i := strings.IndexAny(rest, "/\\?#\r\n"); i >= 0 {
		authority = rest[:i]
		if rest[i] == '/' {
			authority = rest[:i+1]
		}
	}
	// Whatever stands before an @ may be a password. One that holds a separator
	// has its @ behind the part that looks like an authority.
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	switch {
	case strings.IndexByte(rest[len(authority):], '@') >= 0 && !hostWithPort(host):
		authority = redacted + "@"
	case len(host) < len(authority):
		authority = redacted + "@" + host
	}
	return audit.EscapeRaw([]byte(scheme+authority), maxTarget)
}

const redacted = "REDACTED"

// hostWithPort tells whether s, which may end in the slash of a path, has
// nothing behind a colon but a port.
func hostWithPort(s string) bool {
	s = strings.TrimSuffix(s, "/")
	if i := strings.IndexByte(s, ']'); i >= 0 && s[0] == '[' {
		s = s[i:]
	}
	_, port, ok := strings.Cut(s, ":")
	return !ok || strings.Trim(port, "0123456789") == ""
}

// schemeOf is the scheme a target names, "" if what stands there is none (RFC
// 3986 section 3.1).
func schemeOf(target string) string {
	s, _, ok := strings.Cut(target, "://")
	if !ok || s == "" || len(s) > 16 {
		return ""
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return ""
		}
	}
	return s
}
