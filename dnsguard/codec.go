package dnsguard

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Numbers of the registries that are used here, from the library's tables.
const (
	classIN = dns.ClassINET

	typeA     = dns.TypeA
	typeAAAA  = dns.TypeAAAA
	typeCNAME = dns.TypeCNAME
	typeDNAME = dns.TypeDNAME
	typeSOA   = dns.TypeSOA
	typeOPT   = dns.TypeOPT

	rcodeNoError  = dns.RcodeSuccess
	rcodeFormErr  = dns.RcodeFormatError
	rcodeServFail = dns.RcodeServerFailure
	rcodeNXDomain = dns.RcodeNameError
	rcodeNotImp   = dns.RcodeNotImplemented
	rcodeRefused  = dns.RcodeRefused
	rcodeBadVers  = dns.RcodeBadVers

	// ednsDO is the DNSSEC OK bit in the TTL field of an OPT record, RFC 3225.
	ednsDO = 1 << 15
)

// Extended DNS Errors, RFC 8914 section 4.
const (
	edeUnreachable  = int(dns.ExtendedErrorCodeNoReachableAuthority)
	edeNetworkError = int(dns.ExtendedErrorCodeNetworkError)
	edeInvalidData  = int(dns.ExtendedErrorCodeInvalidData)
)

// reply is what a query is answered with. The zero value is an empty answer
// without SOA.
type reply struct {
	rcode int
	// chain are the targets of CNAME records from the question on.
	chain []string
	addrs []netip.Addr
	ttl   time.Duration
	// negative asks for a SOA record that says how long ttl the absence holds,
	// RFC 2308 section 3.
	negative bool
	// ede and text are the Extended DNS Error; they are only sent to a client
	// that sent an OPT record.
	ede  int
	text string
}

// packReply writes the answer to q in at most limit bytes; what does not fit is
// left out and marked so (TC). The question is repeated byte by byte.
func packReply(q *query, r *reply, limit int) ([]byte, error) {
	m := dns.Msg{MsgHdr: dns.MsgHdr{
		Id: q.id, Response: true, Opcode: int(q.flags & maskOpcode >> 11), RecursionDesired: q.flags&flagRD != 0,
		RecursionAvailable: true, CheckingDisabled: q.flags&flagCD != 0, Rcode: r.rcode,
	}}
	owner := presentation(q.name)
	if q.asked {
		m.Question = []dns.Question{{Name: owner, Qtype: q.kind, Qclass: q.class}}
	}
	ttl := uint32(r.ttl / time.Second)
	hdr := func(kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: owner, Rrtype: kind, Class: classIN, Ttl: ttl}
	}
	for _, target := range r.chain {
		m.Answer = append(m.Answer, &dns.CNAME{Hdr: hdr(typeCNAME), Target: dns.Fqdn(target)})
		owner = dns.Fqdn(target)
	}
	for _, a := range r.addrs {
		if a.Is4() {
			m.Answer = append(m.Answer, &dns.A{Hdr: hdr(typeA), A: a.AsSlice()})
		} else {
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: hdr(typeAAAA), AAAA: a.AsSlice()})
		}
	}
	if r.negative {
		if r.rcode == rcodeNXDomain {
			owner = parent(owner) // the name itself does not exist
		}
		// MINIMUM is the TTL: whichever a client reads, it reads the same.
		m.Ns = []dns.RR{&dns.SOA{
			Hdr: hdr(typeSOA), Ns: "sluicegate.invalid.", Mbox: "nobody.invalid.",
			Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: ttl,
		}}
	}
	if q.edns {
		m.Extra = []dns.RR{packOPT(q, r)}
	}
	m.Truncate(limit)
	m.Compress = true // Truncate clears it
	return m.Pack()
}

// packOPT answers an OPT record. Options of the client are not repeated.
func packOPT(q *query, r *reply) *dns.OPT {
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: typeOPT}}
	opt.SetUDPSize(maxUDP)
	opt.SetDo(q.do)
	if r.ede != 0 {
		opt.Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: uint16(r.ede), ExtraText: r.text}}
	}
	return opt
}

// minimalFailure is a SERVFAIL without question, for when nothing else could be
// written.
func minimalFailure(raw []byte) []byte {
	h, ok := parseHeader(raw)
	if !ok {
		return nil
	}
	flags := h.flags&(maskOpcode|flagRD|flagCD) | flagQR | flagRA | rcodeServFail
	out := make([]byte, headerLen)
	out[0], out[1], out[2], out[3] = byte(h.id>>8), byte(h.id), byte(flags>>8), byte(flags)
	return out
}

// packUpstreamQuery writes a question anew: nothing of it comes from a client.
func packUpstreamQuery(id uint16, t question) ([]byte, error) {
	m := dns.Msg{
		MsgHdr:   dns.MsgHdr{Id: id, RecursionDesired: true},
		Question: []dns.Question{{Name: dns.Fqdn(t.name), Qtype: uint16(t.kind), Qclass: classIN}},
	}
	m.SetEdns0(maxUDP, false)
	return m.Pack()
}

// presentation is the text of a name in wire form, with a final dot and with
// everything but letters, digits, hyphen and underscore escaped (RFC 4343
// section 2.1), so that it stands for these bytes and no others.
func presentation(wire []byte) string {
	if len(wire) == 0 {
		return "."
	}
	var b strings.Builder
	b.Grow(len(wire) + 1)
	for _, label := range labels(wire) {
		for _, c := range label {
			if plainByte(c) {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, `\%03d`, c)
			}
		}
		b.WriteByte('.')
	}
	return b.String()
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// parent is the name above an absolute name in presentation form.
func parent(name string) string {
	_, rest, ok := strings.Cut(name, ".")
	if !ok || rest == "" {
		return "."
	}
	return rest
}

// typeName and className are the mnemonics for the record; RFC 3597 section 5
// where there is none.
func typeName(t uint16) string {
	if s, ok := dns.TypeToString[t]; ok {
		return s
	}
	return "TYPE" + strconv.Itoa(int(t))
}

func className(c uint16) string {
	if s, ok := dns.ClassToString[c]; ok {
		return s
	}
	return "CLASS" + strconv.Itoa(int(c))
}

// rcodeName is the mnemonic of a response code. The library has BADVERS (RFC
// 6891 section 9) under the other name of its number.
func rcodeName(rcode int) string {
	if rcode == rcodeBadVers {
		return "BADVERS"
	}
	return dns.RcodeToString[rcode]
}
