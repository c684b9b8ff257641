package proxy

import (
	"bytes"
	"crypto/sha256"
	"sync/atomic"

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
	serverHelloType = 2

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
	if len(body) == 0 || body[0] != 3 || !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&session) || len(session) > 32 ||
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
	// start is where in held the message being collected begins.
	start  int
	hellos int
	early  bool
	// lenient takes first bytes that are no TLS for another protocol.
	lenient bool
	// server is what the server's first words were. It is set by the other
	// direction, before the client can read them.
	server atomic.Int32
}

// What a server's first words can mean for a sniffer.
const (
	// serverSilent: it has said nothing yet.
	serverSilent int32 = iota
	// serverWent on with the handshake, or spoke something else: there will be no
	// second hello.
	serverWent
	// serverRetry asked for another hello.
	serverRetry
)

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
	n := min(s.off, len(s.held))
	if s.collecting || s.hellos == 0 {
		n = s.start
	}
	out := s.held[:n:n]
	s.held = s.held[n:]
	s.off -= n
	s.start = max(0, s.start-n)
	return out
}

// scan looks at what is held. It is called again after push, and after a hello
// was found and may pass.
func (s *sniffer) scan() (finding, clientHello) {
	for {
		if s.hellos > 0 && !s.collecting {
			if f := s.watch(); f != foundHello {
				return f, clientHello{fault: policy.ReasonTLSMalformed}
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

// firstBytes judges a record's header while a message is collected, or where the
// first one must begin. The version is not looked at, because servers must not
// look at it (RFC 8446 section 5.1).
func (s *sniffer) firstBytes(rest []byte) finding {
	first := !s.collecting && s.hellos == 0
	switch {
	case len(rest) == 0:
		return needMore
	case first && rest[0] != recordHandshake:
		return s.noHandshake(rest)
	case rest[0] != recordHandshake:
		return foundFault
	case first && s.lenient && len(rest) >= 2 && rest[1] >= 0x10:
		return foundOther
	case len(rest) < recordHeader:
		return needMore
	}
	n := int(rest[3])<<8 | int(rest[4])
	switch {
	case n == 0 || n > maxRecord:
		return foundFault
	case !first:
		return foundHello
	case len(rest) == recordHeader:
		return needMore
	case rest[recordHeader] != clientHelloType && (s.lenient || rest[1] != 3):
		return foundOther
	default:
		return foundHello
	}
}

// noHandshake tells what else a client may begin with. Some servers pass over an
// alert or a change of cipher spec before the hello, so those are TLS as well.
func (s *sniffer) noHandshake(rest []byte) finding {
	n := map[byte]int{recordChangeCipherSpec: 1, recordAlert: 2}[rest[0]]
	switch {
	case n == 0:
		return foundOther
	case len(rest) >= 2 && rest[1] >= 0x10:
		return foundOther
	case len(rest) < recordHeader:
		return needMore
	case int(rest[3])<<8|int(rest[4]) == n:
		return foundFault
	default:
		return foundOther
	}
}

// collect adds a record to the message. done tells that it is whole, or can't be.
func (s *sniffer) collect(payload []byte) (done bool, h clientHello) {
	if !s.collecting {
		s.collecting, s.start = true, s.off-recordHeader-len(payload)
	}
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

// watch passes over records after a hello until another hello begins (foundHello)
// or none can come any more (foundEnd). What the server said decides: only after
// a HelloRetryRequest there is a second hello, and nothing of a client's that
// looks like one or not can change that. Before the server has spoken a client
// in order sends nothing but early data that it announced, and after a request to
// retry nothing else in front of the hello.
func (s *sniffer) watch() finding {
	for {
		if s.hellos > 1 || s.server.Load() == serverWent {
			return foundEnd
		}
		if s.off >= len(s.held) {
			return needMore
		}
		rest := s.held[s.off:]
		if len(rest) < recordHeader {
			return needMore
		}
		switch kind := rest[0]; {
		case kind == recordHandshake && s.server.Load() == serverRetry:
			s.collecting, s.start = true, s.off
			return foundHello
		case kind == recordChangeCipherSpec, kind == recordAlert, kind == recordData && s.early:
			s.off += recordHeader + (int(rest[3])<<8 | int(rest[4]))
		default:
			return foundFault
		}
	}
}

// retryRandom is the random value of a ServerHello that is a HelloRetryRequest,
// RFC 8446 section 4.1.3: the hash of that name.
var retryRandom = sha256.Sum256([]byte("HelloRetryRequest"))

// maxServerWords is how much of a server's first words is looked at.
const maxServerWords = 1 << 10

// serverWords looks at what a server says first. The zero value is ready.
type serverWords struct {
	raw []byte
}

// read takes bytes of the server and returns what they mean, serverSilent while
// that can't be told.
func (s *serverWords) read(b []byte) int32 {
	// Type, length and version of the message, then its random value.
	const head, want = 6, 6 + sha256.Size
	s.raw = append(s.raw, b[:min(len(b), maxServerWords-len(s.raw))]...)
	more := serverSilent
	if len(s.raw) == maxServerWords {
		more = serverWent // no server wraps a message in so little
	}
	var msg []byte
	for rest := s.raw; len(msg) < want; {
		if len(rest) > 0 && rest[0] != recordHandshake {
			return serverWent
		}
		if len(rest) < recordHeader {
			return more
		}
		n := int(rest[3])<<8 | int(rest[4])
		rest = rest[recordHeader:]
		msg = append(msg, rest[:min(n, len(rest))]...)
		rest = rest[min(n, len(rest)):]
		if len(rest) == 0 && len(msg) < want {
			return more
		}
	}
	if msg[0] == serverHelloType && bytes.Equal(msg[head:want], retryRandom[:]) {
		return serverRetry
	}
	return serverWent
}
