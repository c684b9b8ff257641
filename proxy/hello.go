package proxy

import (
	"bytes"

	"sluicegate/policy"

	"golang.org/x/crypto/cryptobyte"
)

// Numbers of TLS: RFC 8446 section 4 and 5.1, RFC 6066 section 3, RFC 7301
// section 3.1, RFC 9849 section 5.
const (
	recordChangeCipherSpec = 20
	recordAlert            = 21
	recordHandshake        = 22
	recordData             = 23

	clientHelloType = 1

	extServerName = 0
	extALPN       = 16
	extEarlyData  = 42
	extECH        = 0xfe0d

	hostNameType = 0

	recordHeader  = 5
	handshakeHead = 4
	maxRecord     = 1 << 14
)

// Bounds of a ClientHello and of the bytes it may be spread over: far above what
// post-quantum key shares and padding need.
const (
	maxHello       = 64 << 10
	maxHelloStream = 2 * maxHello
)

// clientHello is what a tunnel is judged by and what its records say of it.
type clientHello struct {
	// name is the server name as sent, nil if there is none; canonical is the
	// form that is compared.
	name      []byte
	canonical string
	alpn      []string
	ech       bool
	// early says that data may follow before the server has answered.
	early bool
	fault policy.Reason
}

// parseHello reads the body of a ClientHello, RFC 8446 section 4.1.2. Its fault
// is tls_malformed when the message is not what its lengths say, sni_invalid
// when the server name could be read in more than one way or is no host name.
func parseHello(body []byte) (h clientHello) {
	s := cryptobyte.String(body)
	var session, suites, methods, extensions cryptobyte.String
	if !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&session) || len(session) > 32 ||
		!s.ReadUint16LengthPrefixed(&suites) || len(suites) == 0 || len(suites)%2 != 0 ||
		!s.ReadUint8LengthPrefixed(&methods) || len(methods) == 0 {
		return clientHello{fault: policy.ReasonTLSMalformed}
	}
	// Before TLS 1.3 there may be no extensions, and then there is no name.
	if !s.Empty() && (!s.ReadUint16LengthPrefixed(&extensions) || !s.Empty()) {
		return clientHello{fault: policy.ReasonTLSMalformed}
	}
	named := false
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) {
			h.fault = policy.ReasonTLSMalformed
			return h
		}
		switch kind {
		case extServerName:
			if !h.readName(data) || named {
				h.fault = policy.ReasonSNIInvalid
			}
			named = true
		case extALPN:
			h.readALPN(data)
		case extEarlyData:
			h.early = true
		case extECH:
			h.ech = true
		}
	}
	return h
}

// readName reads a server_name extension, RFC 6066 section 3: one name of the
// one type that there is. Two names, or two of these extensions, are what two
// servers would read in two ways.
func (h *clientHello) readName(data cryptobyte.String) bool {
	var list, name cryptobyte.String
	var kind uint8
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() ||
		!list.ReadUint8(&kind) || !list.ReadUint16LengthPrefixed(&name) {
		return false
	}
	h.name = bytes.Clone(name)
	if !list.Empty() || kind != hostNameType {
		return false
	}
	var ok bool
	h.canonical, ok = policy.ParseServerName(name)
	return ok
}

// maxALPN is how many protocols a record keeps.
const maxALPN = 4

func (h *clientHello) readALPN(data cryptobyte.String) {
	var list, protocol cryptobyte.String
	if !data.ReadUint16LengthPrefixed(&list) {
		return
	}
	for !list.Empty() && len(h.alpn) < maxALPN && list.ReadUint8LengthPrefixed(&protocol) {
		h.alpn = append(h.alpn, string(protocol))
	}
}

// sniffer looks for ClientHellos in what a client sends, however it is cut into
// records and segments. The first must come first; a second one follows a
// HelloRetryRequest (RFC 8446 section 4.1.4). It holds the bytes that may not go
// on yet. The zero value waits for the first.
type sniffer struct {
	held []byte // received and not let go
	// off is where in held the next record begins. It may lie behind the end
	// when the rest of a record has not arrived and need not be looked at.
	off int
	// msg is the message being collected; whole while it may lie in held.
	msg        []byte
	collecting bool
	hellos     int
	early      bool
}

// finding is what a sniffer found in the bytes so far.
type finding int

const (
	// needMore: held may grow; released may go on.
	needMore finding = iota
	// foundHello: a ClientHello is complete.
	foundHello
	// foundOther: the first byte is none of TLS.
	foundOther
	// foundFault: TLS, but no ClientHello that could be judged.
	foundFault
	// foundEnd: nothing more is to be looked for.
	foundEnd
)

// push takes bytes that came from the client.
func (s *sniffer) push(b []byte) { s.held = append(s.held, b...) }

// released takes the bytes that may go on: all that were looked at and are no
// part of an unjudged message.
func (s *sniffer) released() []byte {
	n := 0
	if !s.collecting && s.hellos > 0 {
		n = min(s.off, len(s.held))
	}
	out := s.held[:n:n]
	s.held = s.held[n:]
	s.off -= n
	return out
}

// scan looks at what is held. It is called again after push, and after a hello
// was found and may pass.
func (s *sniffer) scan() (finding, clientHello) {
	for {
		if s.hellos > 0 && !s.collecting {
			if f := s.watch(); f != foundHello {
				return f, clientHello{}
			}
		}
		rest := s.held[min(s.off, len(s.held)):]
		if f := s.firstBytes(rest); f != foundHello {
			return f, clientHello{fault: policy.ReasonTLSMalformed}
		}
		n := int(rest[3])<<8 | int(rest[4])
		if len(rest) < recordHeader+n {
			return needMore, clientHello{}
		}
		s.off += recordHeader + n
		if done, h := s.collect(rest[recordHeader : recordHeader+n]); done {
			if h.fault == policy.ReasonTLSMalformed || h.fault == policy.ReasonTooLarge {
				return foundFault, h
			}
			return foundHello, h
		}
	}
}

// firstBytes judges a record's header while a message is collected.
func (s *sniffer) firstBytes(rest []byte) finding {
	fault := foundFault
	if !s.collecting {
		fault = foundOther
	}
	switch {
	case len(rest) == 0:
		return needMore
	case rest[0] != recordHandshake:
		return fault
	case len(rest) >= 2 && rest[1] != 3:
		return fault
	case len(rest) < recordHeader:
		return needMore
	}
	if n := int(rest[3])<<8 | int(rest[4]); n == 0 || n > maxRecord {
		return foundFault
	}
	return foundHello
}

// collect adds a record to the message. done tells that it is whole, or can't be.
func (s *sniffer) collect(payload []byte) (done bool, h clientHello) {
	s.collecting = true
	if s.msg == nil && len(payload) >= handshakeHead && len(payload) == handshakeHead+messageLength(payload) {
		s.msg = payload // one message in one record: no copy
	} else {
		s.msg = append(s.msg, payload...)
	}
	switch {
	case s.msg[0] != clientHelloType:
		return true, clientHello{fault: policy.ReasonTLSMalformed}
	case s.off > maxHelloStream:
		return true, clientHello{fault: policy.ReasonTooLarge}
	case len(s.msg) < handshakeHead:
		return false, h
	}
	want := handshakeHead + messageLength(s.msg)
	switch {
	case want > maxHello:
		return true, clientHello{fault: policy.ReasonTooLarge}
	case len(s.msg) < want:
		return false, h
	case len(s.msg) > want:
		// Another message in the same record: nobody sends that here.
		return true, clientHello{fault: policy.ReasonTLSMalformed}
	}
	h = parseHello(s.msg[handshakeHead:])
	s.msg, s.collecting = nil, false
	s.hellos++
	s.early = s.early || h.early
	return true, h
}

func messageLength(msg []byte) int { return int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3]) }

// watch passes over records after a hello until there may be another hello
// (foundHello) or there can't be one any more (foundEnd): when the client sends
// another plain handshake message (TLS 1.2) or protected data that it did not
// announce as early.
func (s *sniffer) watch() finding {
	for {
		if s.off >= len(s.held) {
			return needMore
		}
		rest := s.held[s.off:]
		if len(rest) < recordHeader {
			return needMore
		}
		n := int(rest[3])<<8 | int(rest[4])
		switch kind := rest[0]; {
		case kind == recordHandshake && n > 0:
			// Enough to tell a hello from the protected Finished of a resumed
			// TLS 1.2 session, whose first bytes are anything.
			look := min(n, handshakeHead+2)
			if len(rest) < recordHeader+look {
				return needMore
			}
			if !maybeHello(rest[recordHeader:recordHeader+look], n) {
				return foundEnd
			}
			s.collecting = true
			return foundHello
		case kind == recordHandshake, kind == recordChangeCipherSpec, kind == recordAlert, kind == recordData && s.early:
			s.off += recordHeader + n
		default:
			return foundEnd
		}
	}
}

// maybeHello tells whether a plain or protected record of n bytes that begins
// with b may begin a ClientHello. Only the Finished of a resumed TLS 1.2 session
// is protected and may begin in any way; with every cipher suite it is longer
// than 24 and not longer than 96 bytes, and no hello that is whole is so short.
func maybeHello(b []byte, n int) bool {
	const shortest, longest = 24, 96
	switch {
	case b[0] != clientHelloType:
		return false
	case n < shortest, n > longest:
		return true
	default:
		length := messageLength(b)
		return length >= n-handshakeHead && length <= maxHello && b[4] == 3
	}
}
