package proxy

import (
	"bytes"
	"strings"

	"sluicegate/policy"

	"golang.org/x/net/http/httpguts"
)

// head is a request head. Its strings are copies, so that the buffer it was
// read from can go.
type head struct {
	method string
	// target is the request target as received, dest what it names: the zero
	// Destination if it names nothing that can be read.
	target string
	dest   policy.Destination
	// minor is the HTTP/1 minor version, 0 or 1.
	minor int
	// host is the value of the Host field, "" if there is none.
	host string
	// length is the Content-Length, -1 if there is none.
	length  int64
	chunked bool
	// cacheControl and expect tell that there is such a field.
	cacheControl, expect bool
}

func (h *head) isConnect() bool { return h.method == "CONNECT" }

func (h *head) hasBody() bool { return h.chunked || h.length > 0 }

// fault is a request head or body that can't be served.
type fault struct {
	reason policy.Reason
	detail string
}

func faultOf(r policy.Reason, detail string) *fault { return &fault{reason: r, detail: detail} }

// scanHead looks for the end of a request head in b, of which the first from
// bytes were scanned by an earlier call without a result. It returns the head's
// length, 0 while it is incomplete, or the fault that makes waiting pointless.
//
// net/http would accept a bare line feed as the end of a line; here it is a
// fault, so that no two readers can see different lines.
func scanHead(b []byte, from int) (int, *fault) {
	if len(b) > 0 && !isTokenByte(b[0]) {
		return 0, firstByteFault(b[0])
	}
	// Back up over a terminator that may have been cut.
	for i := max(from-3, 0); i < len(b); {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 {
			return 0, nil
		}
		at := i + j
		if at == 0 || b[at-1] != '\r' {
			return 0, faultOf(policy.ReasonBadHeader, "a line ends with a bare line feed")
		}
		if at >= 3 && b[at-2] == '\n' {
			return at + 1, nil
		}
		i = at + 1
	}
	return 0, nil
}

func firstByteFault(c byte) *fault {
	switch c {
	case 4, 5:
		return faultOf(policy.ReasonUnsupported, "SOCKS can not follow HTTP on one connection")
	case 0x16:
		return faultOf(policy.ReasonMalformed, "TLS was sent where an HTTP request belongs: the proxy's URL starts with http://")
	default:
		return faultOf(policy.ReasonMalformed, "this is not an HTTP request")
	}
}

// partialHead reads what the record wants of a head that is not served: the
// request line, or what has arrived of it. Nothing behind the first line is
// looked at, because it may hold credentials.
func partialHead(b []byte) *head {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	h := &head{length: -1}
	_ = h.requestLine(bytes.TrimSuffix(line, []byte("\r")))
	if h.target != "" {
		_ = h.readTarget()
	}
	return h
}

// parseHead validates a complete head, from the request line to the empty line.
// It is stricter than RFC 9112 where leniency has been a way past proxies, and
// accepts nothing that net/http would refuse by itself: that refusal would go
// out before its record.
func parseHead(b []byte) (*head, *fault) {
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	h := &head{length: -1}
	if f := h.requestLine(line); f != nil {
		if h.target != "" {
			_ = h.readTarget()
		}
		return h, f
	}
	badTarget := h.readTarget()
	var hosts, lengths, codings int
	for {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if len(line) == 0 {
			break
		}
		name, value, f := splitField(line)
		if f != nil {
			return h, f
		}
		switch {
		case equalFold(name, "host"):
			hosts++
			h.host = string(value)
		case equalFold(name, "content-length"):
			lengths++
			if h.length, f = parseLength(value); f != nil {
				return h, f
			}
		case equalFold(name, "transfer-encoding"):
			codings++
			if !equalFold(value, "chunked") {
				return h, faultOf(policy.ReasonBadFraming, "the only transfer coding served is chunked")
			}
			h.chunked = true
		case equalFold(name, "expect"):
			if !equalFold(value, "100-continue") {
				return h, faultOf(policy.ReasonBadHeader, "the only expectation served is 100-continue")
			}
			h.expect = true
		case equalFold(name, "trailer"):
			if namesFraming(value) {
				return h, faultOf(policy.ReasonBadHeader, "a trailer can't hold the framing")
			}
		case equalFold(name, "cache-control"):
			h.cacheControl = true
		}
	}
	if f := h.check(hosts, lengths, codings); f != nil {
		return h, f
	}
	return h, badTarget
}

// namesFraming tells whether a Trailer field names a field that decides where
// the message ends.
func namesFraming(value []byte) bool {
	for name := range bytes.SplitSeq(value, []byte(",")) {
		name = bytes.TrimSpace(name)
		if equalFold(name, "transfer-encoding") || equalFold(name, "content-length") || equalFold(name, "trailer") {
			return true
		}
	}
	return false
}

func (h *head) check(hosts, lengths, codings int) *fault {
	switch {
	case hosts > 1:
		return faultOf(policy.ReasonBadHeader, "Host is there twice")
	case lengths > 1:
		return faultOf(policy.ReasonBadFraming, "Content-Length is there twice")
	case codings > 1:
		return faultOf(policy.ReasonBadFraming, "Transfer-Encoding is there twice")
	case codings > 0 && lengths > 0:
		return faultOf(policy.ReasonBadFraming, "Content-Length and Transfer-Encoding stand together")
	case codings > 0 && h.minor == 0:
		return faultOf(policy.ReasonBadFraming, "HTTP/1.0 has no Transfer-Encoding")
	case h.isConnect() && (h.chunked || h.length > 0):
		return faultOf(policy.ReasonBadFraming, "CONNECT has no body")
	case hosts == 0 && h.minor == 1 && !h.isConnect():
		return faultOf(policy.ReasonBadHeader, "HTTP/1.1 needs a Host field")
	case !h.isConnect() && !httpguts.ValidHostHeader(h.host):
		return faultOf(policy.ReasonBadHeader, "Host has a byte that no host has")
	default:
		return nil
	}
}

// requestLine reads method, target and version, separated by one space each.
func (h *head) requestLine(line []byte) *fault {
	method, rest, ok := strings.Cut(string(line), " ")
	if !isToken(method) || len(method) > 32 {
		return faultOf(policy.ReasonBadMethod, "the method is not a token")
	}
	h.method = method
	if !ok {
		return faultOf(policy.ReasonBadVersion, "the request line has no version")
	}
	i := strings.LastIndexByte(rest, ' ')
	if i < 0 {
		h.target = rest
		return faultOf(policy.ReasonBadVersion, "the request line has no version")
	}
	h.target = rest[:i]
	version := rest[i+1:]
	if !strings.HasPrefix(version, "HTTP/") {
		h.target = rest
		return faultOf(policy.ReasonMalformedTarget, "the target has a space")
	}
	switch version {
	case "HTTP/1.1":
		h.minor = 1
	case "HTTP/1.0":
	default:
		return faultOf(policy.ReasonBadVersion, "only HTTP/1.1 and HTTP/1.0 are served")
	}
	switch {
	case method != "CONNECT" && strings.EqualFold(method, "CONNECT"):
		return faultOf(policy.ReasonBadMethod, "methods are case-sensitive: write CONNECT")
	case strings.EqualFold(method, "TRACE"), strings.EqualFold(method, "TRACK"):
		return faultOf(policy.ReasonBadMethod, "TRACE is not served")
	case strings.IndexByte(h.target, ' ') >= 0:
		return faultOf(policy.ReasonMalformedTarget, "the target has a space")
	default:
		return nil
	}
}

// splitField reads one field line, RFC 9112 section 5.
func splitField(line []byte) (name, value []byte, f *fault) {
	if line[0] == ' ' || line[0] == '\t' {
		return nil, nil, faultOf(policy.ReasonBadHeader, "a field is folded over two lines")
	}
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return nil, nil, faultOf(policy.ReasonBadHeader, "a field line has no colon")
	}
	if len(name) == 0 {
		return nil, nil, faultOf(policy.ReasonBadHeader, "a field has no name")
	}
	for _, c := range name {
		if !isTokenByte(c) {
			return nil, nil, faultOf(policy.ReasonBadHeader, "a field name has a byte that is not allowed")
		}
	}
	value = bytes.Trim(value, " \t")
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return nil, nil, faultOf(policy.ReasonBadHeader, "a field value has a control byte")
		}
	}
	return name, value, nil
}

// parseLength reads 1*DIGIT, RFC 9110 section 8.6, within 18 digits so that no
// reader can overflow.
func parseLength(v []byte) (int64, *fault) {
	if len(v) == 0 || len(v) > 18 {
		return 0, faultOf(policy.ReasonBadFraming, "Content-Length is not a number")
	}
	var n int64
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, faultOf(policy.ReasonBadFraming, "Content-Length is not a number")
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

func equalFold(b []byte, s string) bool {
	return len(b) == len(s) && strings.EqualFold(string(b), s)
}

func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

// isTokenByte is tchar of RFC 9110 section 5.6.2.
func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
