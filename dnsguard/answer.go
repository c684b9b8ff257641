package dnsguard

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Bounds of an upstream's answer.
const (
	// maxRecords is how many records a message may claim to have; the largest
	// message that is read has no room for many more.
	maxRecords = 1024
	// maxChain is how many CNAME and DNAME links are followed.
	maxChain = 16
	// negativeTTL is how long the absence of a name or address holds when the
	// answer does not say it.
	negativeTTL = 5 * time.Second
)

// Answer is what a name resolved to. An answer without addresses is one too: it
// says that there are none.
type Answer struct {
	// Addrs are unmapped, without duplicates, in the upstream's order.
	Addrs []netip.Addr
	// Chain are the targets of the CNAME and DNAME records that led from the
	// name to the addresses, in order and in canonical form.
	Chain []string
	// NoName says that the name does not exist at all (NXDOMAIN).
	NoName bool
	// TTL is the smallest of the records that were used; for an answer without
	// addresses how long that holds (RFC 2308 section 5). It is as the upstream
	// sent it.
	TTL time.Duration
}

var (
	errMalformed = errors.New("the answer is malformed")
	errLame      = errors.New("the server does not resolve names for us")
	errLoop      = errors.New("the chain of names does not end")
)

// resource data that readAnswer uses.
type link struct {
	name   string // wire form, lower case
	kind   uint16
	ttl    uint32
	addr   netip.Addr
	target string // wire form, lower case
}

// readAnswer reads a message that answers t: only A, AAAA, CNAME and DNAME
// records of class IN whose owner is on the chain from the name are used.
func readAnswer(msg []byte, t question) (Answer, error) {
	h, _ := parseHeader(msg)
	links, negative, err := readLinks(msg, h)
	if err != nil {
		return Answer{}, err
	}
	if len(links) == 0 && negative < 0 && h.rcode() == rcodeNoError && h.flags&(flagAA|flagRA) == 0 {
		return Answer{}, errLame // a referral
	}
	a, err := follow(links, t)
	if err != nil || len(a.Addrs) > 0 {
		return a, err
	}
	a.NoName = h.rcode() == rcodeNXDomain
	a.TTL = negativeTTL
	if negative >= 0 {
		a.TTL = negative
	}
	return a, nil
}

// readLinks reads the answer section, and of the authority section how long a
// negative answer holds; -1 if it does not say.
func readLinks(msg []byte, h header) (links []link, negative time.Duration, err error) {
	if int(h.an)+int(h.ns)+int(h.ar) > maxRecords {
		return nil, 0, errMalformed
	}
	off, ok := skipQuestions(msg, h)
	if !ok {
		return nil, 0, errMalformed
	}
	r := resource{name: make([]byte, 0, maxNameWire)}
	for range h.an {
		if off, ok = readResource(msg, off, &r); !ok {
			return nil, 0, errMalformed
		}
		l, used, ok := readLink(msg, &r)
		if !ok {
			return nil, 0, errMalformed
		}
		if used {
			links = append(links, l)
		}
	}
	negative = -1
	for range h.ns {
		// What follows the answer can't spoil it.
		if off, ok = readResource(msg, off, &r); !ok {
			break
		}
		if r.kind == typeSOA && r.class == classIN && r.dataEnd-r.data >= 4 {
			minimum := binary.BigEndian.Uint32(msg[r.dataEnd-4:])
			negative = seconds(min(validTTL(r.ttl), validTTL(minimum)))
		}
	}
	return links, negative, nil
}

func skipQuestions(msg []byte, h header) (off int, ok bool) {
	off = headerLen
	var buf [maxNameWire]byte
	for range h.qd {
		if _, off, ok = appendName(buf[:0], msg, off); !ok || off+4 > len(msg) {
			return 0, false
		}
		off += 4
	}
	return off, true
}

// readLink reads the data of a record. An address record whose data has another
// length than an address, none included (RFC 2136 has such records), is
// dropped; a broken target name spoils the message.
func readLink(msg []byte, r *resource) (l link, used, ok bool) {
	if r.class != classIN {
		return link{}, false, true
	}
	l = link{kind: r.kind, ttl: validTTL(r.ttl)}
	switch data := msg[r.data:r.dataEnd]; r.kind {
	case typeA:
		if len(data) != 4 {
			return link{}, false, true
		}
		l.addr = netip.AddrFrom4([4]byte(data))
	case typeAAAA:
		if len(data) != 16 {
			return link{}, false, true
		}
		l.addr = netip.AddrFrom16([16]byte(data)).Unmap()
	case typeCNAME, typeDNAME:
		if len(data) == 0 {
			return link{}, false, true
		}
		var buf [maxNameWire]byte
		target, end, ok := appendName(buf[:0], msg, r.data)
		if !ok || end != r.dataEnd {
			return link{}, false, false
		}
		l.target = string(target)
	default:
		return link{}, false, true
	}
	l.name = string(r.name)
	return l, true, true
}

// follow walks from the name to its addresses.
func follow(links []link, t question) (Answer, error) {
	var a Answer
	ttl := uint32(math.MaxInt32)
	at := t.wire
	visited := []string{at}
	for {
		for _, l := range links {
			if l.name != at || l.kind != uint16(t.kind) {
				continue
			}
			ttl = min(ttl, l.ttl)
			if !slices.Contains(a.Addrs, l.addr) {
				a.Addrs = append(a.Addrs, l.addr)
			}
		}
		if len(a.Addrs) > 0 {
			a.TTL = seconds(ttl)
			return a, nil
		}
		next, nextTTL, err := step(links, at)
		if err != nil {
			return Answer{}, err
		}
		if next == "" {
			return a, nil
		}
		if slices.Contains(visited, next) || len(a.Chain) == maxChain {
			return Answer{}, errLoop
		}
		target, err := judgeTarget(t.name, next)
		if err != nil {
			return Answer{}, err
		}
		ttl = min(ttl, nextTTL)
		visited = append(visited, next)
		a.Chain = append(a.Chain, target)
		at = next
	}
}

// step finds where the name at leads: by its CNAME, else by the DNAME of a name
// above it (RFC 6672 section 2.2); "" if nowhere.
func step(links []link, at string) (next string, ttl uint32, err error) {
	for _, l := range links {
		if l.kind == typeCNAME && l.name == at {
			if l.target == "" {
				return "", 0, errMalformed // an alias of the root
			}
			return l.target, l.ttl, nil
		}
	}
	for _, l := range links {
		if l.kind != typeDNAME || !below(at, l.name) {
			continue
		}
		next = at[:len(at)-len(l.name)] + l.target
		if len(next) > maxNameWire {
			return "", 0, errMalformed
		}
		return next, l.ttl, nil
	}
	return "", 0, nil
}

// below tells whether name is strictly below zone, by labels.
func below(name, zone string) bool {
	if !strings.HasSuffix(name, zone) {
		return false
	}
	cut := len(name) - len(zone)
	i := 0
	for i < cut {
		i += 1 + int(name[i])
	}
	return i == cut && cut > 0
}

// validTTL reads a TTL: one with the highest bit set is 0 (RFC 2181 section 8).
func validTTL(ttl uint32) uint32 {
	if ttl > math.MaxInt32 {
		return 0
	}
	return ttl
}

func seconds(ttl uint32) time.Duration { return time.Duration(ttl) * time.Second }
