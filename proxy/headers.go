package proxy

import (
	"net/http"
	"slices"
	"strings"

	"sluicegate/policy"

	"golang.org/x/net/http/httpguts"
)

// hopByHop are the fields that belong to one connection, RFC 9110 section 7.6.1
// and what proxies use besides. Transfer-Encoding and Trailer are net/http's.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Upgrade", "Http2-Settings",
	"Proxy-Authorization", "Proxy-Authenticate", "Proxy-Authentication-Info",
}

// endToEnd are fields that a Connection field can't take away: the framing, the
// target, and what the origin decides access by.
var endToEnd = map[string]bool{
	"Host": true, "Content-Length": true, "Content-Type": true, "Transfer-Encoding": true,
	"Authorization": true, "Cookie": true, "Set-Cookie": true, "Date": true, "Cache-Control": true,
}

// validFields tells whether every field of a response may be sent on. net/http
// lets values with control bytes through.
func validFields(h http.Header) bool {
	for name, values := range h {
		if !httpguts.ValidHeaderFieldName(name) {
			return false
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return false
			}
		}
	}
	return true
}

// cleanTrailer removes the trailer fields of a response that a recipient could
// take for something else: framing, authentication, the hop's own (RFC 9110
// section 6.5.1), and malformed ones.
func cleanTrailer(h http.Header) {
	for name, values := range h {
		if !httpguts.ValidTrailerHeader(name) || !validFields(http.Header{name: values}) || slices.Contains(hopByHop, name) {
			delete(h, name)
		}
	}
}

// removeHopByHop removes the fields of one hop and those that Connection names.
func removeHopByHop(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if name != "" && !endToEnd[name] {
				h.Del(name)
			}
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
}

// prepareRequest makes a judged request ready to be sent: target and Host come
// from the judged destination, nothing is added.
func prepareRequest(r *http.Request, h *head, dest policy.Destination) {
	websocket := wantsWebSocket(r, h)
	removeHopByHop(r.Header)
	if websocket {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		// Without this net/http would name itself.
		r.Header["User-Agent"] = []string{""}
	}
	if !h.cacheControl {
		// net/http made one of Pragma.
		r.Header.Del("Cache-Control")
	}
	// net/http would also pass on trailer fields that nobody announced, Host and
	// Content-Length among them. A recipient may discard all (RFC 9110 section
	// 6.5.1), and few origins look at any.
	r.Trailer = nil
	r.RequestURI = ""
	// If the origin answers an expectation with a final response, net/http would
	// read the body all the same to keep the connection, and the client, which
	// was not told to, would not send it.
	r.Close = len(r.Header["Expect"]) > 0
	r.URL.Scheme = "http"
	r.URL.Host = dest.String()
	r.URL.User = nil
	r.Host = hostField(h, dest)
}

// hostField is the Host the origin gets: the client's bytes if they name the
// target (signatures may cover them), else the target (RFC 9112 section 3.2.2).
func hostField(h *head, dest policy.Destination) string {
	if authorityOr(h.host, "80") == dest {
		return h.host
	}
	s := dest.String()
	if dest.Port() == 80 {
		s = strings.TrimSuffix(s, ":80")
	}
	return s
}

// wantsWebSocket tells whether the request asks to become a WebSocket, RFC 6455
// section 4.1. Any other upgrade is not passed on, nor one with a body: where
// that ends the frames begin, and two readers could disagree on it.
func wantsWebSocket(r *http.Request, h *head) bool {
	return r.Method == http.MethodGet && r.ProtoAtLeast(1, 1) && !h.hasBody() &&
		hasToken(r.Header["Connection"], "upgrade") && hasToken(r.Header["Upgrade"], "websocket")
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}
