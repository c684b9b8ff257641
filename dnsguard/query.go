package dnsguard

import (
	"encoding/binary"

	"sluicegate/policy"
)

// query is what a client asked. The zero query has no question.
type query struct {
	id, flags uint16
	// name is the question's name as sent, in wire form without the root label.
	// It points into the packet.
	name        []byte
	kind, class uint16
	// asked is set once the question was read.
	asked bool
	// edns says that the client sent an OPT record, RFC 6891: udpSize is the
	// largest datagram it takes, do its DNSSEC OK bit.
	edns    bool
	udpSize uint16
	do      bool
}

// fault is a packet that is not judged as a query.
type fault struct {
	reason policy.Reason
	rcode  int
	detail string
}

func malformed(detail string) *fault {
	return &fault{reason: policy.ReasonMalformed, rcode: rcodeFormErr, detail: detail}
}

// limit is the largest answer the client takes over UDP; without OPT udpSize is
// 0.
func (q *query) limit() int {
	return max(minUDP, min(int(q.udpSize), maxUDP))
}

// parseQuery reads a packet that has at least a header and is no response. What
// it could read before a fault is in the query, so that the answer can repeat
// it. A query has one question (RFC 9619) and at most an OPT record; bytes
// behind the message are ignored and go nowhere.
func parseQuery(raw []byte) (q query, f *fault) {
	h, ok := parseHeader(raw)
	q.id, q.flags = h.id, h.flags
	switch {
	case !ok:
		return q, malformed("the packet is shorter than a header")
	case h.opcode() != 0:
		return q, &fault{reason: policy.ReasonUnsupported, rcode: rcodeNotImp, detail: "only standard queries are answered"}
	case h.qd != 1:
		return q, malformed("a query has exactly one question")
	}
	off, f := q.parseQuestion(raw)
	switch {
	case f != nil:
		return q, f
	case h.an != 0 || h.ns != 0 || h.ar > 1:
		return q, malformed("a query has no records but one OPT")
	case h.ar == 1:
		return q, q.parseOPT(raw, off)
	}
	return q, nil
}

// parseQuestion reads the question, in which a name can't be compressed.
func (q *query) parseQuestion(raw []byte) (next int, f *fault) {
	var buf [maxNameWire]byte
	name, off, ok := appendName(buf[:0], raw, headerLen)
	switch {
	case !ok:
		return 0, malformed("the question's name is broken")
	case off != headerLen+len(name)+1:
		return 0, malformed("the question's name is compressed")
	case off+4 > len(raw):
		return 0, malformed("the question has no type and class")
	}
	q.name = raw[headerLen : off-1 : off-1]
	q.kind = binary.BigEndian.Uint16(raw[off:])
	q.class = binary.BigEndian.Uint16(raw[off+2:])
	q.asked = true
	return off + 4, nil
}

// parseOPT reads the only additional record, RFC 6891 section 6.1.
func (q *query) parseOPT(raw []byte, off int) *fault {
	var r resource
	end, ok := readResource(raw, off, &r)
	switch {
	case !ok:
		return malformed("the additional record is broken")
	case r.kind != typeOPT || len(r.name) != 0:
		return malformed("the additional record is no OPT")
	}
	for off := r.data; off < end; {
		if off+4 > end {
			return malformed("an EDNS option is broken")
		}
		off += 4 + int(binary.BigEndian.Uint16(raw[off+2:]))
		if off > end {
			return malformed("an EDNS option is broken")
		}
	}
	q.edns, q.udpSize, q.do = true, r.class, r.ttl&ednsDO != 0
	if version := byte(r.ttl >> 16); version != 0 {
		return &fault{reason: policy.ReasonUnsupported, rcode: rcodeBadVers, detail: "only EDNS version 0 is spoken"}
	}
	return nil
}
