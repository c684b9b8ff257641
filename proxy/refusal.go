package proxy

import (
	"bytes"
	"encoding/json"
	"html"
	"net/http"
	"strconv"
	"strings"

	"sluicegate/policy"
)

// refusal is what a client is told. It never holds the allowlist, a resolved
// address or the text of a dial error.
type refusal struct {
	status int
	reason policy.Reason
	event  string // id of the record, "" if there is none
	// header fields and body, ready to send.
	header [][2]string
	body   []byte
}

// problem is the body, RFC 9457.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Instance  string `json:"instance,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Product   string `json:"product,omitempty"`
	Profile   string `json:"profile,omitempty"`
	Host      string `json:"host,omitempty"`
	Port      uint16 `json:"port,omitempty"`
	Rule      string `json:"rule,omitempty"`
	Retryable bool   `json:"retryable"`
}

// refuse builds the answer for a reason. detail is a constant text that says
// more than the reason does, or "".
func (s *Server) refuse(f *flow, reason policy.Reason, detail, event string) *refusal {
	info := reason.Info()
	status := statusOf(info)
	told := string(reason)
	if s.cfg.Detail == DetailNone && info.Class == policy.ClassDeny && !ofGate(info) {
		told, detail = "", ""
	}
	p := problem{
		Type: "about:blank", Title: title(info), Status: status, Instance: event, Reason: told,
		Product: f.decision.Profile.Product, Profile: f.profile, Host: f.dest.Host(), Port: f.dest.Port(),
		Retryable: info.Class == policy.ClassUpstream && reason != policy.ReasonInternal,
	}
	if told != "" {
		p.Type = "tag:sluicegate.dev,2026:reason/" + told
	}
	if s.cfg.Detail == DetailRule && f.decision.Rule != nil {
		p.Rule = f.decision.Rule.ID
	}
	p.Detail = s.explain(f, info, told, detail, event)
	body, err := json.Marshal(p)
	if err != nil { // no value of a problem can fail; never answer with nothing
		body = []byte(`{"status":` + strconv.Itoa(status) + `}`)
	}
	r := &refusal{status: status, reason: reason, event: event, body: append(body, '\n')}
	r.header = headerOf(info, told, event)
	return r
}

// statusOf is the status a reason is answered with. Reasons that end a tunnel
// have none of their own: they end a request that was waiting for its response.
func statusOf(info policy.Info) int {
	switch {
	case info.HTTP != 0:
		return info.HTTP
	case info.Reason == policy.ReasonShutdown:
		return http.StatusServiceUnavailable
	case info.Reason == policy.ReasonIdleTimeout:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}

// ofGate tells whether a reason is a condition of the gate or of the request,
// not a verdict on the destination.
func ofGate(info policy.Info) bool {
	switch info.Reason {
	case policy.ReasonLimit, policy.ReasonTooLarge, policy.ReasonTimeout, policy.ReasonAuditUnavailable, policy.ReasonInternal:
		return true
	default:
		return info.Class == policy.ClassClose
	}
}

func title(info policy.Info) string {
	switch {
	case ofGate(info):
		return "The request could not be served"
	case info.Class == policy.ClassMalformed:
		return "Malformed request"
	case info.Class == policy.ClassUpstream:
		return "The destination could not be reached"
	default:
		return "Blocked by egress policy"
	}
}

// explain is the detail text: what happened, whose decision it is, what to do.
func (s *Server) explain(f *flow, info policy.Info, told, detail, event string) string {
	var b strings.Builder
	target := f.dest.String()
	if target == "" {
		target = "the request"
	}
	ask := ""
	if event != "" {
		ask = " The user can run: sluicegate explain " + event
	}
	switch {
	case ofGate(info):
		if detail == "" {
			detail = info.Meaning
		}
		b.WriteString("The gate could not serve the request: " + strings.TrimSuffix(detail, ".") + ".")
		if info.Class != policy.ClassClose {
			b.WriteString(" " + info.Mend)
		}
		b.WriteString(ask)
	case info.Class == policy.ClassMalformed:
		if detail == "" {
			detail = info.Meaning
		}
		b.WriteString("The gate does not forward a malformed request: " + strings.TrimSuffix(detail, ".") + ". " + info.Mend + ask)
	case info.Class == policy.ClassUpstream:
		b.WriteString("The policy allows " + target + ", but it could not be reached: " + info.Meaning + ask)
	default:
		b.WriteString("This is a decision of the organisation's network policy, not an outage: " + target +
			" is refused for " + f.profile)
		if told != "" {
			b.WriteString(" (" + told + ": " + info.Meaning)
			if detail != "" {
				b.WriteString(" " + detail + ".")
			}
			b.WriteString(")")
		}
		b.WriteString(". The whole class of destination is refused: do not retry and do not look for another route. Ask the user for access." + ask)
	}
	return b.String()
}

// hostReasons are the denials whose cause is the host.
var hostReasons = map[policy.Reason]bool{
	policy.ReasonNotListed: true, policy.ReasonIPLiteralNotListed: true, policy.ReasonDenyRule: true,
	policy.ReasonLocalName: true, policy.ReasonDestPrivate: true, policy.ReasonDestMetadata: true, policy.ReasonDestSelf: true,
}

func headerOf(info policy.Info, told, event string) [][2]string {
	word := info.ProxyError
	if told == "" || word == "" {
		word = "blocked-by-policy"
	}
	h := [][2]string{
		{"Content-Type", "application/problem+json"},
		{"Cache-Control", "no-store"},
		{"X-Content-Type-Options", "nosniff"},
	}
	status := "sluicegate; error="
	switch {
	case told == "":
		status += "http_request_denied"
	case info.ProxyStatus == "": // the end of a tunnel or request
		status += "connection_terminated"
	default:
		status += info.ProxyStatus
	}
	if told != "" {
		status += `; details="` + told + `"`
	}
	h = append(h, [2]string{"Proxy-Status", status})
	if info.Class == policy.ClassDeny {
		h = append(h, [2]string{"X-Proxy-Error", word})
		if told != "" && hostReasons[info.Reason] {
			h = append(h, [2]string{"X-Deny-Reason", "host_not_allowed"})
		}
	}
	if event != "" {
		h = append(h, [2]string{"X-Sluicegate-Event", event})
	}
	return h
}

// phrase is the reason phrase of a refused CONNECT: several clients show
// nothing else of the answer.
func (r *refusal) phrase() string {
	info := r.reason.Info()
	text := "Blocked by egress policy"
	switch {
	case ofGate(info), info.Class == policy.ClassUpstream:
		text = http.StatusText(r.status)
	case info.Class == policy.ClassMalformed:
		text = "Malformed request"
	}
	if r.told() != "" {
		text += " (" + r.told() + ")"
	}
	if r.event != "" {
		text += " " + r.event
	}
	return text
}

// told is the reason as the client may know it.
func (r *refusal) told() string {
	for _, h := range r.header {
		if h[0] == "Proxy-Status" && !strings.Contains(h[1], "details=") {
			return ""
		}
	}
	return string(r.reason)
}

// wire is the whole answer to a request with that method, on a connection that
// closes after it.
func (r *refusal) wire(method string) []byte {
	var b bytes.Buffer
	b.Grow(1024 + len(r.body))
	b.WriteString("HTTP/1.1 " + strconv.Itoa(r.status) + " " + r.phrase() + "\r\n")
	for _, h := range r.header {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	b.WriteString("Content-Length: " + strconv.Itoa(len(r.body)) + "\r\nConnection: close\r\n\r\n")
	if method != http.MethodHead {
		b.Write(r.body)
	}
	return b.Bytes()
}

// preferHTML replaces the body for a person at a browser.
func (r *refusal) preferHTML(accept string) {
	if !wantsHTML(accept) {
		return
	}
	var p problem
	if json.Unmarshal(r.body, &p) != nil {
		return
	}
	var b strings.Builder
	b.WriteString("<!doctype html><meta charset=utf-8><title>" + html.EscapeString(p.Title) + "</title><h1>" +
		html.EscapeString(p.Title) + "</h1><p>" + html.EscapeString(p.Detail) + "</p>\n")
	r.body = []byte(b.String())
	for i := range r.header {
		if r.header[i][0] == "Content-Type" {
			r.header[i][1] = "text/html; charset=utf-8"
		}
	}
	r.header = append(r.header, [2]string{"Content-Security-Policy", "default-src 'none'"})
}

// wantsHTML tells whether Accept (RFC 9110 section 12.5.1) gives text/html a
// higher weight than JSON. Wildcards count as no wish.
func wantsHTML(accept string) bool {
	htmlQ, jsonQ := 0.0, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		media, params, _ := strings.Cut(part, ";")
		q := 1.0
		for p := range strings.SplitSeq(params, ";") {
			if v, ok := strings.CutPrefix(strings.TrimSpace(p), "q="); ok {
				if x, err := strconv.ParseFloat(v, 64); err == nil {
					q = x
				}
			}
		}
		switch strings.ToLower(strings.TrimSpace(media)) {
		case "text/html":
			htmlQ = q
		case "application/problem+json", "application/json":
			jsonQ = max(jsonQ, q)
		}
	}
	return htmlQ > jsonQ
}
