package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"
)

// SOCKS 5, RFC 1928, without its other commands; SOCKS 4 is only refused. The
// names are those of the sections cited.
const (
	socks4Version = 4
	socks5Version = 5

	// Section 3.
	socksNoAuth       = 0
	socksNoAcceptable = 0xff

	// Section 4.
	socksConnect   = 1
	socksBind      = 2
	socksAssociate = 3

	// Section 5.
	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4

	// Section 6: the reply for an address type that is not known.
	socksBadAddrType = 8

	// socks4Rejected is the SOCKS 4 reply "request rejected or failed".
	socks4Rejected = 91
	// maxSOCKS4Text bounds the user id, and the name of SOCKS 4A.
	maxSOCKS4Text = 255
)

// socksPhase is how far a SOCKS conversation is, which decides what a refusal
// looks like. The zero value is no SOCKS.
type socksPhase int

const (
	socksNone socksPhase = iota
	socksGreeting
	socksRequested
	socks4Requested
)

// socksGranted tells a SOCKS 5 client that its tunnel is open. The bound address
// is not told: it is nobody's business, and no client needs it.
var socksGranted = []byte{socks5Version, 0, 0, socksIPv4, 0, 0, 0, 0, 0, 0}

// socksWire is the refusal in the words of the client's protocol. It is empty
// where that has none.
func (f *flow) socksWire(r *refusal) []byte {
	switch f.socks {
	case socksGreeting:
		if r.reason == policy.ReasonBadAuth {
			return []byte{socks5Version, socksNoAcceptable}
		}
		return nil
	case socks4Requested:
		return []byte{0, socks4Rejected, 0, 0, 0, 0, 0, 0}
	}
	code := byte(r.reason.Info().SOCKS)
	switch {
	case f.socksReply != 0 && r.reason == policy.ReasonUnsupported:
		code = f.socksReply
	case code == 0:
		code = 1
	}
	reply := bytes.Clone(socksGranted)
	reply[1] = code
	return reply
}

// socksTarget is what a SOCKS client asked for.
type socksTarget struct {
	command byte
	dest    policy.Destination
	// raw is the host as it was sent, as text, and port what followed it.
	raw  []byte
	port uint16
}

func socksCommand(b byte) string {
	switch b {
	case socksConnect:
		return "CONNECT"
	case socksBind:
		return "BIND"
	case socksAssociate:
		return "UDP ASSOCIATE"
	default:
		return ""
	}
}

// scanGreeting reads a SOCKS 5 greeting of n bytes, RFC 1928 section 3; n is 0
// while it is incomplete. open tells that the client offers to go without a
// password, which is the only method there is: the listener is the identity.
func scanGreeting(b []byte) (n int, open bool) {
	if len(b) < 2 || len(b) < 2+int(b[1]) {
		return 0, false
	}
	n = 2 + int(b[1])
	return n, bytes.IndexByte(b[2:n], socksNoAuth) >= 0
}

// scanSOCKS5 reads a SOCKS 5 request of n bytes, RFC 1928 section 4; n is 0
// while it is incomplete. reply is the code for a fault that has its own.
func scanSOCKS5(b []byte) (t socksTarget, n int, reply byte, f *fault) {
	if len(b) > 0 && b[0] != socks5Version {
		return t, 0, 0, faultOf(policy.ReasonBadVersion, "the SOCKS request has another version than the greeting")
	}
	if len(b) < 4 {
		return t, 0, 0, nil
	}
	t.command = b[1]
	if b[2] != 0 {
		return t, 0, 0, faultOf(policy.ReasonMalformed, "the reserved byte of the SOCKS request is not zero")
	}
	host := 0
	switch b[3] {
	case socksIPv4:
		host = 4
	case socksIPv6:
		host = 16
	case socksName:
		if len(b) < 5 {
			return t, 0, 0, nil
		}
		host = 1 + int(b[4])
	default:
		return t, 0, socksBadAddrType, faultOf(policy.ReasonUnsupported, "the address type of the SOCKS request is not known")
	}
	n = 4 + host + 2
	if len(b) < n {
		return t, 0, 0, nil
	}
	t.port = binary.BigEndian.Uint16(b[n-2:])
	var err error
	if b[3] == socksName {
		t.raw = bytes.Clone(b[5 : n-2])
		t.dest, err = policy.ParseName(string(t.raw), t.port)
	} else {
		a, _ := netip.AddrFromSlice(b[4 : n-2])
		t.raw = []byte(a.String())
		t.dest, err = policy.AddrDestination(netip.AddrPortFrom(a, t.port))
	}
	var bad *policy.ParseError
	switch {
	case errors.As(err, &bad):
		f = faultOf(bad.Reason, bad.Detail)
	case t.command != socksConnect:
		f = faultOf(policy.ReasonUnsupported, "the SOCKS command is not served: only CONNECT is")
	}
	return t, n, 0, f
}

// scanSOCKS4 reads a SOCKS 4 or 4A request; n is 0 while it is incomplete.
func scanSOCKS4(b []byte) (t socksTarget, n int, f *fault) {
	if len(b) < 9 {
		return t, 0, nil
	}
	t.command, t.port = b[1], binary.BigEndian.Uint16(b[2:])
	a := netip.AddrFrom4([4]byte(b[4:8]))
	text := func(from int) (end int) {
		end = bytes.IndexByte(b[from:min(len(b), from+maxSOCKS4Text+1)], 0)
		if end < 0 && len(b)-from > maxSOCKS4Text {
			f = faultOf(policy.ReasonMalformed, "a text of the SOCKS request has no end")
		}
		return from + end
	}
	user := text(8)
	if user < 8 {
		return t, 0, f
	}
	n = user + 1
	var err error
	// An address 0.0.0.x announces a name: SOCKS 4A.
	if ip := a.As4(); ip[0] == 0 && ip[1] == 0 && ip[2] == 0 && ip[3] != 0 {
		end := text(n)
		if end < n {
			return t, 0, f
		}
		t.raw = bytes.Clone(b[n:end])
		n = end + 1
		t.dest, err = policy.ParseName(string(t.raw), t.port)
	} else {
		t.raw = []byte(a.String())
		t.dest, err = policy.AddrDestination(netip.AddrPortFrom(a, t.port))
	}
	var bad *policy.ParseError
	if errors.As(err, &bad) {
		f = faultOf(bad.Reason, bad.Detail)
	}
	return t, n, f
}

// socks5 serves one SOCKS 5 client; the connection is used up by it. One
// deadline is for greeting and request together.
func (c *clientConn) socks5() {
	f := c.socksFlow(policy.ProtoSOCKS5, socksGreeting)
	defer f.cancel(nil)
	by := time.Now().Add(c.l.s.cfg.Limits.Handshake)
	open := false
	if !c.await(f, by, func(b []byte) (n int, ft *fault) {
		if n, open = scanGreeting(b); n > 0 && !open {
			ft = faultOf(policy.ReasonBadAuth, "the client does not offer to go without authentication")
		}
		return n, ft
	}) {
		return
	}
	if _, err := c.rc.socket.Write([]byte{socks5Version, socksNoAuth}); err != nil {
		return
	}
	f.socks = socksRequested
	if !c.await(f, by, func(b []byte) (n int, ft *fault) {
		var t socksTarget
		t, n, f.socksReply, ft = scanSOCKS5(b)
		f.target(&t)
		return n, ft
	}) {
		return
	}
	c.tunnel(f, socksGranted)
}

// socks4 refuses a SOCKS 4 client with the reason of its destination, if that is
// not allowed anyway.
func (c *clientConn) socks4() {
	f := c.socksFlow(policy.ProtoSOCKS4, socks4Requested)
	defer f.cancel(nil)
	if !c.await(f, time.Now().Add(c.l.s.cfg.Limits.Handshake), func(b []byte) (int, *fault) {
		t, n, ft := scanSOCKS4(b)
		f.target(&t)
		return n, ft
	}) {
		return
	}
	if f.decision = c.l.s.judge(f, nil); !f.decision.Allowed() {
		c.l.s.refuseConn(f, c.rc.socket, f.decision.Reason, f.decision.Detail)
		return
	}
	f.decision = policy.Decision{Profile: f.decision.Profile}
	c.l.s.refuseConn(f, c.rc.socket, policy.ReasonUnsupported, "SOCKS 4 is not served: use SOCKS 5")
}

func (c *clientConn) socksFlow(proto policy.Proto, phase socksPhase) *flow {
	f := c.l.s.newFlow(c.l.profile, c.remote, c.peer)
	f.proto, f.socks, f.stage = proto, phase, "listener"
	c.current = f
	return f
}

// target takes over what was asked for.
func (f *flow) target(t *socksTarget) {
	f.dest = t.dest
	if t.raw == nil {
		return
	}
	f.method = socksCommand(t.command)
	raw, cut := audit.EscapeRaw(t.raw, maxTarget)
	if f.targetRaw, f.targetCut = raw, cut; !cut {
		f.targetRaw = raw + ":" + strconv.Itoa(int(t.port))
	}
}

// await reads until scan has found what it looks for, and takes that from what
// was received. A fault, the end and silence are answered and recorded; then it
// is false.
func (c *clientConn) await(f *flow, by time.Time, scan func([]byte) (int, *fault)) bool {
	n, ft := c.rc.await(by, scan)
	if ft != nil {
		c.l.s.refuseConn(f, c.rc.socket, ft.reason, ft.detail)
	} else if n > 0 {
		c.rc.consume(n)
	}
	return ft == nil && n > 0
}
