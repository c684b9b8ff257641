package dnsguard

import "encoding/binary"

// Sizes of RFC 1035 and RFC 6891.
const (
	headerLen = 12
	// maxNameWire is the longest name without its root label, RFC 1035 section
	// 3.1: 255 bytes with it.
	maxNameWire = 254
	maxLabel    = 63
	// minUDP is what every client takes, RFC 1035 section 4.2.1; maxUDP is what
	// is sent and asked for at most, so that no packet is fragmented.
	minUDP = 512
	maxUDP = 1232
)

// Bits of the second header word, RFC 1035 section 4.1.1 and RFC 4035 section 3.
const (
	flagQR     = 1 << 15
	flagAA     = 1 << 10
	flagTC     = 1 << 9
	flagRD     = 1 << 8
	flagRA     = 1 << 7
	flagCD     = 1 << 4
	maskOpcode = 0xf << 11
	maskRCode  = 0xf
)

// header is the fixed part of a message.
type header struct {
	id, flags      uint16
	qd, an, ns, ar uint16
}

func (h header) opcode() int { return int(h.flags & maskOpcode >> 11) }
func (h header) rcode() int  { return int(h.flags & maskRCode) }

// parseHeader reads the header; ok is false if msg is shorter than one.
func parseHeader(msg []byte) (h header, ok bool) {
	if len(msg) < headerLen {
		return header{}, false
	}
	word := func(i int) uint16 { return binary.BigEndian.Uint16(msg[2*i:]) }
	return header{id: word(0), flags: word(1), qd: word(2), an: word(3), ns: word(4), ar: word(5)}, true
}

// appendName appends the name at off to dst in wire form, in lower case and
// without the root label: two names are equal if and only if these bytes are
// (RFC 4343 section 3). Pointers are followed backwards only, so that they end
// (RFC 1035 section 4.1.4). next is the offset after the name where it stands.
func appendName(dst, msg []byte, off int) (name []byte, next int, ok bool) {
	start, base, followed := off, len(dst), false
	for {
		if off >= len(msg) {
			return dst, 0, false
		}
		n := int(msg[off])
		switch {
		case n == 0:
			if !followed {
				next = off + 1
			}
			return dst, next, true
		case n <= maxLabel:
			if off+1+n > len(msg) || len(dst)-base+1+n > maxNameWire {
				return dst, 0, false
			}
			dst = append(dst, msg[off])
			for _, c := range msg[off+1 : off+1+n] {
				dst = append(dst, lower(c))
			}
			off += 1 + n
		case n >= 0xc0:
			if off+2 > len(msg) {
				return dst, 0, false
			}
			if !followed {
				next, followed = off+2, true
			}
			target := int(binary.BigEndian.Uint16(msg[off:]) &^ 0xc000)
			if target >= start {
				return dst, 0, false
			}
			off, start = target, target
		default: // 0x40 and 0x80 are reserved
			return dst, 0, false
		}
	}
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// labels splits a name in wire form, without the root label. The labels point
// into wire.
func labels(wire []byte) [][]byte {
	out := make([][]byte, 0, 8)
	for len(wire) > 0 {
		n := 1 + int(wire[0])
		out = append(out, wire[1:n])
		wire = wire[n:]
	}
	return out
}

// wireName turns a canonical name into its wire form without the root label; ok
// is false if it is no name.
func wireName(name string) (wire string, ok bool) {
	if name == "" || len(name)+1 > maxNameWire {
		return "", false
	}
	out := make([]byte, len(name)+1)
	start := 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' {
			out[i+1] = name[i]
			continue
		}
		n := i - start
		if n == 0 || n > maxLabel {
			return "", false
		}
		out[start] = byte(n)
		start = i + 1
	}
	return string(out), true
}

// resource is one resource record of a message; data is where its data stands.
type resource struct {
	name          []byte // wire form, lower case
	kind, class   uint16
	ttl           uint32
	data, dataEnd int
}

// readResource reads the record at off into r, using r.name's memory again, and
// returns the offset after it.
func readResource(msg []byte, off int, r *resource) (next int, ok bool) {
	r.name, off, ok = appendName(r.name[:0], msg, off)
	if !ok || off+10 > len(msg) {
		return 0, false
	}
	r.kind = binary.BigEndian.Uint16(msg[off:])
	r.class = binary.BigEndian.Uint16(msg[off+2:])
	r.ttl = binary.BigEndian.Uint32(msg[off+4:])
	r.data = off + 10
	r.dataEnd = r.data + int(binary.BigEndian.Uint16(msg[off+8:]))
	if r.dataEnd > len(msg) {
		return 0, false
	}
	return r.dataEnd, true
}
