package policy

import (
	"net/netip"
	"strconv"
	"strings"
)

// Destination is a host and a port in canonical form. It can only be made by
// the parsers of this package; every later step takes it instead of strings, so
// that matching, dialling and recording see the same thing. The zero value is
// invalid and [Snapshot.Decide] denies it.
type Destination struct {
	name string
	addr netip.Addr
	port uint16
	// judged is what kind of name it is, so that a request is classified once.
	judged nameKind
}

// kind classifies the name of a destination that has one.
func (d *Destination) kind() nameKind {
	if d.judged != nameUnjudged {
		return d.judged
	}
	return classifyName(d.name)
}

// IsValid tells whether d was made by a parser.
func (d Destination) IsValid() bool { return d.port != 0 && (d.name != "" || d.addr.IsValid()) }

// Name is the host name in lower case without trailing dot, "" for an address.
func (d Destination) Name() string { return d.name }

// Addr is the address of an IP literal, IPv4-mapped ones as IPv4, without zone;
// the zero Addr for a name.
func (d Destination) Addr() netip.Addr { return d.addr }

// Port is 1 to 65535, 0 only in the zero Destination.
func (d Destination) Port() uint16 { return d.port }

// Host is the name or the address without brackets.
func (d Destination) Host() string {
	if d.addr.IsValid() {
		return d.addr.String()
	}
	return d.name
}

// String is host:port, an IPv6 address in brackets; "" for the zero value.
func (d Destination) String() string {
	switch {
	case d.addr.IsValid():
		return netip.AddrPortFrom(d.addr, d.port).String()
	case d.name != "":
		return d.name + ":" + strconv.Itoa(int(d.port))
	default:
		return ""
	}
}

// ParseAuthority reads the target of a CONNECT request, host:port with both
// parts present (RFC 9110 section 9.3.6). It reads the bytes as received.
func ParseAuthority(raw string) (Destination, error) {
	d, err := parseAuthority(raw, 0, ReasonMalformedAuthority)
	if err != nil {
		return Destination{}, err
	}
	return d, nil
}

// ParseTarget reads the target of a forwarded request in absolute form (RFC
// 9112 section 3.2.2). Only the scheme http is a destination; a missing port
// is 80.
func ParseTarget(raw string) (Destination, error) {
	d, err := parseTarget(raw)
	if err != nil {
		return Destination{}, err
	}
	return d, nil
}

// ParseHostPort reads what a person types: a host or host:port, an IPv6 address
// with or without brackets when there is no port. A missing port is defaultPort.
func ParseHostPort(s string, defaultPort uint16) (Destination, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Is6() {
		s = "[" + s + "]"
	}
	d, err := parseAuthority(s, defaultPort, ReasonMalformedAuthority)
	if err != nil {
		return Destination{}, err
	}
	return d, nil
}

// ParseName reads a host and a port that came apart, as in SOCKS (RFC 1928
// section 5): name is a host name or a dotted-decimal IPv4 address, without
// brackets or port. The error is a *ParseError.
func ParseName(name string, port uint16) (Destination, error) {
	if port == 0 {
		return Destination{}, malformed(ReasonBadPort, "the port is 0")
	}
	d := Destination{port: port}
	var err *ParseError
	if d.name, d.addr, err = parseHost(name); err != nil {
		return Destination{}, err
	}
	if d.name != "" {
		d.judged = classifyName(d.name)
	}
	return d, nil
}

// AddrDestination is the destination of an address that came as bytes. An
// IPv4-mapped address becomes IPv4. The error is a *ParseError.
func AddrDestination(a netip.AddrPort) (Destination, error) {
	switch {
	case a.Port() == 0:
		return Destination{}, malformed(ReasonBadPort, "the port is 0")
	case !a.IsValid(), a.Addr().Zone() != "":
		return Destination{}, malformed(ReasonMalformedHost, "the address is not valid")
	}
	return Destination{addr: a.Addr().Unmap(), port: a.Port()}, nil
}

func parseTarget(raw string) (Destination, *ParseError) {
	if raw == "" {
		return Destination{}, malformed(ReasonMalformedTarget, "the request has no target")
	}
	if raw[0] == '/' || raw == "*" {
		return Destination{}, malformed(ReasonNotProxyRequest, "this is a proxy: send the whole URL")
	}
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok || !isScheme(scheme) || !strings.HasPrefix(rest, "//") {
		return Destination{}, malformed(ReasonMalformedTarget, "the target is not an absolute URL")
	}
	if !strings.EqualFold(scheme, "http") {
		return Destination{}, malformed(ReasonBadScheme, "only http URLs are forwarded: use CONNECT for https")
	}
	rest = rest[2:]
	for i := 0; i < len(rest); i++ {
		// Bytes of 0x80 and above may stand in a path (many clients send UTF-8
		// as it is); in the host they are refused below.
		if c := rest[i]; c <= ' ' || c == 0x7f || c == '#' || c == '\\' {
			return Destination{}, malformed(ReasonMalformedTarget, "the target has a byte that no URL has")
		}
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if authority == "" {
		return Destination{}, malformed(ReasonMalformedTarget, "the URL has no host")
	}
	d, err := parseAuthority(authority, 80, ReasonMalformedTarget)
	if err == nil && !escaped(path) {
		err = malformed(ReasonMalformedTarget, "a % in the path is not followed by two hexadecimal digits")
	}
	if err != nil {
		return Destination{}, err
	}
	return d, nil
}

// escaped tells whether each % of a path is followed by two hexadecimal digits
// (RFC 3986 section 2.1). A query is left alone: many clients send a bare % in
// it and no program reads it differently.
func escaped(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	for {
		i := strings.IndexByte(path, '%')
		if i < 0 {
			return true
		}
		if len(path) < i+3 || !isHex(path[i+1]) || !isHex(path[i+2]) {
			return false
		}
		path = path[i+3:]
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func isScheme(s string) bool {
	if s == "" || s[0]|0x20 < 'a' || s[0]|0x20 > 'z' {
		return false
	}
	for i := 1; i < len(s); i++ {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// parseAuthority splits host and port. defaultPort 0 means that the port is
// required. shape is the reason for faults of the whole rather than of a part.
func parseAuthority(raw string, defaultPort uint16, shape Reason) (Destination, *ParseError) {
	if raw == "" {
		return Destination{}, malformed(shape, "the target is empty")
	}
	if strings.IndexByte(raw, '@') >= 0 {
		return Destination{}, malformed(shape, "credentials are not allowed in the target")
	}
	host, port, hasPort, err := splitPort(raw, shape)
	if err != nil {
		return Destination{}, err
	}
	var d Destination
	if host != "" && host[0] == '[' {
		d.addr, err = parseIPv6(host[1 : len(host)-1])
	} else {
		d.name, d.addr, err = parseHost(host)
	}
	if err != nil {
		return Destination{}, err
	}
	if d.name != "" {
		d.judged = classifyName(d.name)
	}
	switch {
	case hasPort:
		d.port, err = parsePort(port)
	case defaultPort != 0:
		d.port = defaultPort
	default:
		err = malformed(shape, "the port is missing: write host:port")
	}
	if err != nil {
		return Destination{}, err
	}
	return d, nil
}

// splitPort cuts raw at the colon before the port. A host in brackets comes
// back with them, and only with both.
func splitPort(raw string, shape Reason) (host, port string, hasPort bool, err *ParseError) {
	if raw[0] == '[' {
		end := strings.IndexByte(raw, ']')
		if end < 0 {
			return "", "", false, malformed(ReasonMalformedHost, "the closing bracket is missing")
		}
		host, rest := raw[:end+1], raw[end+1:]
		switch {
		case rest == "":
			return host, "", false, nil
		case rest[0] == ':':
			return host, rest[1:], true, portShape(rest[1:], shape)
		default:
			return "", "", false, malformed(ReasonMalformedHost, "something stands between the closing bracket and the port")
		}
	}
	if strings.ContainsAny(raw, "[]") {
		return "", "", false, malformed(ReasonMalformedHost, "a bracket stands inside the host")
	}
	host, port, hasPort = strings.Cut(raw, ":")
	if !hasPort {
		return host, "", false, nil
	}
	if strings.IndexByte(port, ':') >= 0 {
		return "", "", false, malformed(shape, "an IPv6 address needs brackets, and a host has one port")
	}
	if host == "" {
		return "", "", false, malformed(shape, "the host is empty")
	}
	return host, port, true, portShape(port, shape)
}

// portShape refuses a port that is followed by something else, so that the
// fault is named after what it is.
func portShape(port string, shape Reason) *ParseError {
	if strings.ContainsAny(port, "/?#\\") {
		return malformed(shape, "something follows the port")
	}
	return nil
}

func parsePort(s string) (uint16, *ParseError) {
	if s == "" || len(s) > 5 || s[0] == '0' {
		return 0, malformed(ReasonBadPort, "the port is not a number from 1 to 65535")
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, malformed(ReasonBadPort, "the port is not a number from 1 to 65535")
		}
		n = n*10 + int(s[i]-'0')
	}
	if n > 65535 {
		return 0, malformed(ReasonBadPort, "the port is not a number from 1 to 65535")
	}
	return uint16(n), nil
}
