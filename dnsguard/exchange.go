package dnsguard

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"time"
)

// Bounds of one exchange.
const (
	// maxDatagram is what is read of a datagram; more than was asked for.
	maxDatagram = 4096
	// maxStream is the longest answer that is read over TCP.
	maxStream = 16 << 10
	// maxStrangers is how many datagrams that answer something else are passed
	// over. Each may be a guess at the id; over TCP there is nothing to guess.
	maxStrangers = 64
)

// exchanger asks one server once. soft is told of an answer that can't be used
// while the wait goes on; it may be called several times.
type exchanger func(ctx context.Context, server netip.AddrPort, t question, soft func(error)) (Answer, error)

// exchange asks over UDP, and over TCP if the answer does not fit (RFC 7766
// section 5). It uses one socket with a port of its own and a random id for
// each question (RFC 5452 section 9.2).
func exchange(ctx context.Context, server netip.AddrPort, t question, soft func(error)) (Answer, error) {
	id, query, err := newQuery(t)
	if err != nil {
		return Answer{}, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", server.String())
	if err != nil {
		return Answer{}, err
	}
	defer bindContext(ctx, conn)()
	if _, err := conn.Write(query); err != nil {
		return Answer{}, ctxError(ctx, err)
	}
	buf := make([]byte, maxDatagram)
	for strangers := 0; strangers < maxStrangers; {
		n, err := conn.Read(buf)
		if err != nil {
			return Answer{}, ctxError(ctx, err)
		}
		msg := buf[:n]
		if !answers(msg, id, t) {
			strangers++
			continue
		}
		if h, _ := parseHeader(msg); h.flags&flagTC != 0 {
			return exchangeStream(ctx, server, t)
		}
		a, err := readReply(msg, t)
		if !spoiled(err) {
			return a, err
		}
		// Somebody may have broken or forged it: the true one may follow.
		strangers++
		soft(err)
	}
	return exchangeStream(ctx, server, t)
}

// exchangeStream asks over TCP.
func exchangeStream(ctx context.Context, server netip.AddrPort, t question) (Answer, error) {
	id, query, err := newQuery(t)
	if err != nil {
		return Answer{}, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", server.String())
	if err != nil {
		return Answer{}, err
	}
	defer bindContext(ctx, conn)()
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	if _, err := conn.Write(framed); err != nil {
		return Answer{}, ctxError(ctx, err)
	}
	for range maxStrangers {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return Answer{}, ctxError(ctx, err)
		}
		n := binary.BigEndian.Uint16(size[:])
		if n > maxStream {
			return Answer{}, errTooLarge
		}
		msg := make([]byte, n)
		if _, err := io.ReadFull(conn, msg); err != nil {
			return Answer{}, ctxError(ctx, err)
		}
		if answers(msg, id, t) {
			return readReply(msg, t)
		}
	}
	return Answer{}, errExhausted
}

// newQuery writes a query with a new random id.
func newQuery(t question) (id uint16, query []byte, err error) {
	var b [2]byte
	_, _ = rand.Read(b[:]) // it never fails
	id = binary.BigEndian.Uint16(b[:])
	query, err = packUpstreamQuery(id, t)
	return id, query, err
}

// answers tells whether msg answers exactly what was asked (RFC 5452 section
// 9.1): id, direction, operation and question. The name is compared without
// case, as some servers return another one.
func answers(msg []byte, id uint16, t question) bool {
	h, ok := parseHeader(msg)
	if !ok || h.id != id || h.flags&flagQR == 0 || h.opcode() != 0 || h.qd != 1 {
		return false
	}
	var buf [maxNameWire]byte
	name, off, ok := appendName(buf[:0], msg, headerLen)
	return ok && string(name) == t.wire && off+4 <= len(msg) &&
		binary.BigEndian.Uint16(msg[off:]) == uint16(t.kind) && binary.BigEndian.Uint16(msg[off+2:]) == classIN
}

// readReply reads a message that answers the question: a failure of the server
// is an error.
func readReply(msg []byte, t question) (Answer, error) {
	h, _ := parseHeader(msg)
	if rcode := h.rcode(); rcode != rcodeNoError && rcode != rcodeNXDomain {
		return Answer{}, &rcodeError{rcode}
	}
	return readAnswer(msg, t)
}

// bindContext makes the end of ctx end what conn waits for. The function it
// returns closes conn.
func bindContext(ctx context.Context, conn net.Conn) func() {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		stop()
		_ = conn.Close()
	}
}

// ctxError prefers the reason the wait was ended for.
func ctxError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
