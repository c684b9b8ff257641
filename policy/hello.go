package policy

// Hello is what a client said first in a tunnel where TLS is expected. The
// package proxy reads it; what it means for the tunnel is decided here.
type Hello struct {
	// Fault is why the bytes are no ClientHello that could be judged:
	// protocol_mismatch, tls_malformed, sni_invalid, too_large or timeout; ""
	// for a well-formed one.
	Fault Reason
	// Name is the server name (RFC 6066 section 3) as [ParseServerName] returns
	// it, "" if there is none.
	Name string
	// ECH says that there is an Encrypted ClientHello extension, which may hide
	// another name or be filler (RFC 9849 section 6.2).
	ECH bool
}

// ParseServerName brings a server name to the form of a [Destination]'s name.
// It is false for what is no host name, an address included.
func ParseServerName(raw []byte) (name string, ok bool) {
	name, addr, err := parseHost(string(raw))
	return name, err == nil && !addr.IsValid()
}

// judgeHello decides about a tunnel that was allowed so far. d is unchanged when
// the hello may pass.
func (s *Snapshot) judgeHello(p *profile, r *Request, d *Decision) {
	switch reason := s.helloFault(p, r, d); {
	case reason == "":
	case p.info.observing(r.Now) && (relaxable(reason) || reason == ReasonTimeout):
		// A server that speaks first lets its client wait.
		d.Would, d.Reason = reason, ReasonObserve
	default:
		d.Action, d.Reason, d.Would = ActionDeny, reason, ""
	}
}

func (s *Snapshot) helloFault(p *profile, r *Request, d *Decision) Reason {
	h := r.Hello
	switch name := r.Destination.name; {
	case d.TLSAny:
		return ""
	case h.Fault != "":
		return h.Fault
	case h.ECH && d.ECHRefused:
		return ReasonECHPresent
	case h.Name == name:
		// The same name, or an address and none.
		return ""
	case h.Name == "":
		return ReasonSNIMissing
	case name == "":
		// An address was asked for, and the profile may reach the name itself.
		return s.nameFault(p, r)
	default:
		return ReasonSNIMismatch
	}
}

// nameFault holds the hello of a tunnel to an address against the name that it
// gives: the profile may open a tunnel to it on that port, not by observe mode
// alone, and the name's own rule counts.
func (s *Snapshot) nameFault(p *profile, r *Request) Reason {
	again := *r
	again.Hello, again.Addrs = nil, nil
	again.Destination = Destination{name: r.Hello.Name, port: r.Destination.port, judged: classifyName(r.Hello.Name)}
	var d Decision
	s.judge(p, &again, &d)
	switch {
	case !d.Allowed() || d.Observed():
		return ReasonSNIMismatch
	case r.Hello.ECH && d.ECHRefused:
		return ReasonECHPresent
	default:
		return ""
	}
}
