package policy

// Reason says why a destination was refused, or how it was allowed. The strings
// are an interface: once shipped they are never renamed. The zero value means
// unspecified and never leaves [Decide].
type Reason string

// Policy denials.
const (
	ReasonNotListed          Reason = "not_listed"
	ReasonPortNotListed      Reason = "port_not_listed"
	ReasonMethodNotListed    Reason = "method_not_listed"
	ReasonPathNotListed      Reason = "path_not_listed"
	ReasonIPLiteralNotListed Reason = "ip_literal_not_listed"
	ReasonDenyRule           Reason = "deny_rule"
	ReasonRuleExpired        Reason = "rule_expired"
	ReasonModeBlocked        Reason = "mode_blocked"
	ReasonNoPolicy           Reason = "no_policy"
	ReasonUnknownProfile     Reason = "unknown_profile"
	ReasonBadIdentity        Reason = "bad_identity"
	ReasonRevoked            Reason = "revoked"
)

// Denials of the address guard.
const (
	ReasonDestPrivate  Reason = "dest_private"
	ReasonDestMetadata Reason = "dest_metadata"
	ReasonDestSelf     Reason = "dest_self"
	ReasonLocalName    Reason = "local_name"
	ReasonLoop         Reason = "loop"
)

// Denials of the ClientHello check.
const (
	ReasonSNIMismatch      Reason = "sni_mismatch"
	ReasonSNIMissing       Reason = "sni_missing"
	ReasonSNIInvalid       Reason = "sni_invalid"
	ReasonECHPresent       Reason = "ech_present"
	ReasonProtocolMismatch Reason = "protocol_mismatch"
	ReasonTLSMalformed     Reason = "tls_malformed"
)

// Denials of the DNS listener.
const (
	ReasonQTypeNotAllowed  Reason = "qtype_not_allowed"
	ReasonQClassNotAllowed Reason = "qclass_not_allowed"
	ReasonSpecialUse       Reason = "special_use"
	ReasonCanaryName       Reason = "canary_name"
	ReasonCNAMENotAllowed  Reason = "cname_not_allowed"
	ReasonTunnelShape      Reason = "tunnel_shape"
	ReasonTunnelBudget     Reason = "tunnel_budget"
)

// Denials by a limit.
const (
	ReasonLimit    Reason = "limit"
	ReasonTooLarge Reason = "too_large"
	ReasonTimeout  Reason = "timeout"
)

// Malformed input.
const (
	ReasonMalformedHost      Reason = "malformed_host"
	ReasonAmbiguousIP        Reason = "ambiguous_ip"
	ReasonMalformedAuthority Reason = "malformed_authority"
	ReasonMalformedTarget    Reason = "malformed_target"
	ReasonBadPort            Reason = "bad_port"
	ReasonBadScheme          Reason = "bad_scheme"
	ReasonBadMethod          Reason = "bad_method"
	ReasonBadVersion         Reason = "bad_version"
	ReasonBadHeader          Reason = "bad_header"
	ReasonBadFraming         Reason = "bad_framing"
	ReasonNotProxyRequest    Reason = "not_proxy_request"
	ReasonUnsupported        Reason = "unsupported"
	ReasonMalformed          Reason = "malformed"
	ReasonBadAuth            Reason = "bad_auth"
)

// Faults that are not our verdict.
const (
	ReasonDNSError         Reason = "dns_error"
	ReasonDNSTimeout       Reason = "dns_timeout"
	ReasonUpstreamRefused  Reason = "upstream_refused"
	ReasonUpstreamTimeout  Reason = "upstream_timeout"
	ReasonUpstreamReset    Reason = "upstream_reset"
	ReasonUpstreamTLS      Reason = "upstream_tls"
	ReasonParentProxy      Reason = "parent_proxy"
	ReasonAuditUnavailable Reason = "audit_unavailable"
	ReasonInternal         Reason = "internal"
)

// Ends of a tunnel, beside [ReasonRevoked].
const (
	ReasonClientClosed      Reason = "client_closed"
	ReasonUpstreamClosed    Reason = "upstream_closed"
	ReasonIdleTimeout       Reason = "idle_timeout"
	ReasonHalfClosedTimeout Reason = "half_closed_timeout"
	ReasonShutdown          Reason = "shutdown"
)

// How something was allowed.
const (
	ReasonRule        Reason = "rule"
	ReasonException   Reason = "exception"
	ReasonOpenNetwork Reason = "open_network"
	ReasonObserve     Reason = "observe"
)

// Class groups reasons; every surface answers a class in its own way.
type Class int

// Classes of reasons. The zero value is a denial, so that an unknown reason is
// answered as one.
const (
	ClassDeny Class = iota
	ClassMalformed
	ClassUpstream
	ClassClose
	ClassAllow
)

// String returns the class's name as docs/reasons.md prints it.
func (c Class) String() string {
	switch c {
	case ClassMalformed:
		return "malformed"
	case ClassUpstream:
		return "upstream"
	case ClassClose:
		return "close"
	case ClassAllow:
		return "allow"
	default:
		return "deny"
	}
}

// Words of the X-Proxy-Error header that agents already know.
const (
	wordAllowlist = "blocked-by-allowlist"
	wordDenylist  = "blocked-by-denylist"
	wordMethod    = "blocked-by-method-policy"
	wordPolicy    = "blocked-by-policy"
)

// SOCKS5 reply codes, RFC 1928 section 6.
const (
	socksGeneral     = 1
	socksNotAllowed  = 2
	socksHostUnreach = 4
	socksRefused     = 5
	socksTTL         = 6
	socksCommand     = 7
	socksAddrType    = 8
)

// DNSMapping is how the DNS listener answers a reason.
type DNSMapping struct {
	// RCode is the response code's mnemonic (RFC 8914 and RFC 6895), or NODATA,
	// DROP, or "-" where the reason cannot occur in DNS.
	RCode string
	// EDE is the Extended DNS Error code, RFC 8914; 0 where none is sent.
	EDE int
}

// Info is everything the surfaces and the documentation need of a reason.
type Info struct {
	Reason Reason
	Class  Class
	// HTTP is the status of the refusal for HTTP and CONNECT, 0 for reasons
	// that are never sent as one.
	HTTP int
	// SOCKS is the reply code of RFC 1928 section 6, 0 for reasons never sent.
	SOCKS int
	DNS   DNSMapping
	// ProxyError is the X-Proxy-Error word, empty for reasons never sent.
	ProxyError string
	// ProxyStatus is the error type of the Proxy-Status field, RFC 9209
	// section 2.3.
	ProxyStatus string
	// Meaning, Cause and Mend are one sentence each, for people; Meaning is also
	// the status_detail of the OCSF view.
	Meaning, Cause, Mend string
}
