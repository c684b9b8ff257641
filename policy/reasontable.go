package policy

import "slices"

// reasonTable has one row for each reason, in the order docs/reasons.md prints
// them.
var reasonTable = slices.Concat(denials, faultsAndEnds)

var denials = []Info{
	{
		Reason: ReasonNotListed, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 15}, ProxyError: wordAllowlist, ProxyStatus: "http_request_denied",
		Meaning: "No rule of the profile allows this host.",
		Cause:   "The host is not in the profile's allow rules or host groups.",
		Mend:    "Ask whoever keeps the policy to add it, or use another source.",
	},
	{
		Reason: ReasonPortNotListed, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordAllowlist, ProxyStatus: "http_request_denied",
		Meaning: "The host is allowed, but not on this port.",
		Cause:   "A rule without ports covers 443 for tunnels and 80 for plain HTTP only.",
		Mend:    "List the port in the rule.",
	},
	{
		Reason: ReasonMethodNotListed, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordMethod, ProxyStatus: "http_request_denied",
		Meaning: "The host is allowed, but not with this method.",
		Cause:   "The rule lists methods and this one is not among them.",
		Mend:    "List the method in the rule.",
	},
	{
		Reason: ReasonPathNotListed, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordMethod, ProxyStatus: "http_request_denied",
		Meaning: "The host is allowed, but not this path.",
		Cause:   "The rule lists paths and none matches.",
		Mend:    "List the path in the rule.",
	},
	{
		Reason: ReasonIPLiteralNotListed, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordAllowlist, ProxyStatus: "http_request_denied",
		Meaning: "An IP address was asked for directly and no ip or cidr rule covers it.",
		Cause:   "Rules for names never cover addresses.",
		Mend:    "Use the host's name, or add an ip or cidr rule.",
	},
	{
		Reason: ReasonDenyRule, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 15}, ProxyError: wordDenylist, ProxyStatus: "http_request_denied",
		Meaning: "A deny rule names this destination.",
		Cause:   "Deny rules always win over allow rules and exceptions.",
		Mend:    "Change or remove the deny rule if it is wrong.",
	},
	{
		Reason: ReasonRuleExpired, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 15}, ProxyError: wordAllowlist, ProxyStatus: "http_request_denied",
		Meaning: "The rule that allowed this destination has expired.",
		Cause:   "The rule's expiry date has passed.",
		Mend:    "Renew the rule.",
	},
	{
		Reason: ReasonModeBlocked, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 15}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The profile has no network at all.",
		Cause:   "The profile sets network: blocked.",
		Mend:    "Set network: allowlist for the profile if it needs the network.",
	},
	{
		Reason: ReasonNoPolicy, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 14}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "No policy is loaded, so everything is refused.",
		Cause:   "The policy folder is missing, unreadable or was rejected.",
		Mend:    "Run sluicegate status to see why no policy is loaded.",
	},
	{
		Reason: ReasonUnknownProfile, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 18}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The listener belongs to no profile of the current policy.",
		Cause:   "The profile was removed from the policy; its listener stays until a restart.",
		Mend:    "Point the client at a profile that exists.",
	},
	{
		Reason: ReasonBadIdentity, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 18}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The local user who owns the connection may not use this profile, or the owner could not be read.",
		Cause:   "Another user's process connected to this listener.",
		Mend:    "Run the client as the user the gate serves.",
	},
	{
		Reason: ReasonRevoked, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 15}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "A live tunnel lost its permission.",
		Cause:   "The policy changed while the tunnel was open.",
		Mend:    "Ask whoever keeps the policy.",
	},
	{
		Reason: ReasonDestPrivate, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NODATA", EDE: 15}, ProxyError: wordAllowlist, ProxyStatus: "destination_ip_prohibited",
		Meaning: "The destination is, or resolves to, an address of a special-purpose range.",
		Cause:   "Private, loopback, link-local and other special ranges are refused by default.",
		Mend:    "If it is meant, add a rule with the host and resolves_to, or an ip or cidr rule.",
	},
	{
		Reason: ReasonDestMetadata, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NODATA", EDE: 15}, ProxyError: wordAllowlist, ProxyStatus: "destination_ip_prohibited",
		Meaning: "The destination is a cloud metadata service.",
		Cause:   "Metadata services hand out credentials and can not be opened by any rule.",
		Mend:    "There is none: use credentials that were given to the agent on purpose.",
	},
	{
		Reason: ReasonDestSelf, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NODATA", EDE: 15}, ProxyError: wordAllowlist, ProxyStatus: "destination_ip_prohibited",
		Meaning: "The destination is this machine, its gateway or the gate itself.",
		Cause:   "Own addresses and own listeners can not be reached through the gate.",
		Mend:    "For a local service add a rule with its exact loopback address and port.",
	},
	{
		Reason: ReasonLocalName, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 15}, ProxyError: wordAllowlist, ProxyStatus: "destination_ip_prohibited",
		Meaning: "The name only has a meaning inside the local network.",
		Cause:   "Single labels, localhost, .local, .internal, .home.arpa and the like are refused before any look-up.",
		Mend:    "If it is meant, add a rule with the exact name and resolves_to.",
	},
	{
		Reason: ReasonLoop, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordPolicy, ProxyStatus: "proxy_loop_detected",
		Meaning: "The request came back to the gate through another proxy.",
		Cause:   "Two proxies point at each other.",
		Mend:    "Remove one of them from the chain.",
	},
	{
		Reason: ReasonSNIMismatch, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The TLS handshake names another host than the tunnel.",
		Cause:   "The client sent a server name that differs from the host it asked for.",
		Mend:    "Use a client that speaks TLS to the host named in the request.",
	},
	{
		Reason: ReasonSNIMissing, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The TLS handshake names no host.",
		Cause:   "The client sent no server name.",
		Mend:    "Use a client that speaks TLS to the host named in the request.",
	},
	{
		Reason: ReasonSNIInvalid, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The server name of the TLS handshake is not a host name.",
		Cause:   "The client sent a malformed server name.",
		Mend:    "Use a client that speaks TLS to the host named in the request.",
	},
	{
		Reason: ReasonECHPresent, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The TLS handshake hides the server name.",
		Cause:   "The rule refuses encrypted ClientHello.",
		Mend:    "Use a client that speaks TLS to the host named in the request.",
	},
	{
		Reason: ReasonProtocolMismatch, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The port is for TLS and something else was sent.",
		Cause:   "Clear-text HTTP or another protocol was sent to a port that is listed for TLS.",
		Mend:    "Use a client that speaks TLS to the host named in the request.",
	},
	{
		Reason: ReasonTLSMalformed, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "-", EDE: 0}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The first bytes are not a well-formed TLS handshake.",
		Cause:   "The client sent a broken ClientHello.",
		Mend:    "Use a client that speaks TLS to the host named in the request.",
	},
	{
		Reason: ReasonQTypeNotAllowed, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NODATA", EDE: 15}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "This record type is not answered.",
		Cause:   "Only address records of allowed names are.",
		Mend:    "Use the names the policy lists.",
	},
	{
		Reason: ReasonQClassNotAllowed, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "REFUSED", EDE: 15}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "This query class is not answered.",
		Cause:   "Only class IN is.",
		Mend:    "Use the names the policy lists.",
	},
	{
		Reason: ReasonSpecialUse, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 15}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The name is reserved for special use.",
		Cause:   "Reverse zones and resolver discovery names are never forwarded.",
		Mend:    "Use the names the policy lists.",
	},
	{
		Reason: ReasonCanaryName, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 15}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The name asks whether encrypted DNS may be used.",
		Cause:   "The answer keeps clients on this resolver.",
		Mend:    "Use the names the policy lists.",
	},
	{
		Reason: ReasonCNAMENotAllowed, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NODATA", EDE: 15}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The answer leads through a name that is not allowed.",
		Cause:   "The name is an alias of one that can not be a public destination, such as localhost or a metadata name.",
		Mend:    "Use the names the policy lists.",
	},
	{
		Reason: ReasonTunnelShape, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 15}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "The name looks like data, not like a host.",
		Cause:   "Labels below a wildcard are longer than the budget.",
		Mend:    "Use the names the policy lists.",
	},
	{
		Reason: ReasonTunnelBudget, Class: ClassDeny, HTTP: 403, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "NXDOMAIN", EDE: 15}, ProxyError: wordPolicy, ProxyStatus: "http_request_denied",
		Meaning: "Too many different names were asked below one wildcard.",
		Cause:   "The wildcard's budget is used up.",
		Mend:    "Use the names the policy lists.",
	},
	{
		Reason: ReasonLimit, Class: ClassDeny, HTTP: 503, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "SERVFAIL", EDE: 0}, ProxyError: wordPolicy, ProxyStatus: "connection_limit_reached",
		Meaning: "Too many connections are open.",
		Cause:   "The profile's or the gate's connection limit is reached.",
		Mend:    "Close idle connections, or raise limits in sluicegate.yaml.",
	},
	{
		Reason: ReasonTooLarge, Class: ClassDeny, HTTP: 431, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "DROP", EDE: 0}, ProxyError: wordPolicy, ProxyStatus: "http_request_error",
		Meaning: "The request head is larger than the limit.",
		Cause:   "Very long headers or an endless header.",
		Mend:    "Send a smaller head, or raise limits.header_bytes.",
	},
	{
		Reason: ReasonTimeout, Class: ClassDeny, HTTP: 408, SOCKS: socksNotAllowed,
		DNS: DNSMapping{RCode: "DROP", EDE: 0}, ProxyError: wordPolicy, ProxyStatus: "http_request_error",
		Meaning: "The request, or the TLS handshake in a tunnel, did not arrive in time.",
		Cause:   "The client was silent or slow.",
		Mend:    "Send the request at once, and TLS at once in a tunnel to port 443.",
	},
}

var reasonIndex = func() map[Reason]*Info {
	m := make(map[Reason]*Info, len(reasonTable))
	for i := range reasonTable {
		m[reasonTable[i].Reason] = &reasonTable[i]
	}
	return m
}()

// Info returns what is known of r. An unknown reason gets the row of
// [ReasonInternal], so that a surface always has something safe to send.
func (r Reason) Info() Info {
	if i, ok := reasonIndex[r]; ok {
		return *i
	}
	return *reasonIndex[ReasonInternal]
}

// Reasons returns one row for each reason in the order of the documentation.
// The caller owns the slice.
func Reasons() []Info {
	return append([]Info(nil), reasonTable...)
}
