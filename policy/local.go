package policy

import (
	"net/netip"
	"strings"
)

// LocalSet is what the guard must know of this machine: its own addresses, its
// default gateways and the gate's own listeners. It is immutable; the owner
// swaps in a new one when interfaces change. A nil LocalSet knows nothing, and
// then only the address table protects.
type LocalSet struct {
	addrs     map[netip.Addr]struct{}
	listeners map[uint16]struct{}
}

// NewLocalSet copies its input. Addresses are unmapped and lose their zone;
// listener ports are refused on every loopback and own address.
func NewLocalSet(addrs []netip.Addr, listenerPorts []uint16) *LocalSet {
	s := &LocalSet{
		addrs:     make(map[netip.Addr]struct{}, len(addrs)),
		listeners: make(map[uint16]struct{}, len(listenerPorts)),
	}
	for _, a := range addrs {
		if a.IsValid() {
			s.addrs[a.Unmap().WithZone("")] = struct{}{}
		}
	}
	for _, p := range listenerPorts {
		s.listeners[p] = struct{}{}
	}
	return s
}

// own tells whether a is an address of this machine or a default gateway that a
// rule may not open. Loopback is left to the table: a rule may open one exact
// loopback address and port.
func (s *LocalSet) own(a netip.Addr) bool {
	if s == nil || a.IsLoopback() {
		return false
	}
	_, ok := s.addrs[a]
	return ok
}

// listener tells whether a and port are one of the gate's own listeners.
func (s *LocalSet) listener(a netip.Addr, port uint16) bool {
	if s == nil || !a.IsLoopback() && !a.IsUnspecified() {
		return false
	}
	_, ok := s.listeners[port]
	return ok
}

// classify judges an address by the table and by what is local.
func (s *LocalSet) classify(a netip.Addr, port uint16) AddrClass {
	a = a.Unmap()
	c := ClassifyAddr(a)
	switch {
	case c.Reason == ReasonDestMetadata:
		return c
	case s.listener(a, port):
		return AddrClass{Range: "own listener", Reason: ReasonDestSelf}
	case s.own(a):
		return AddrClass{Range: "own address", Reason: ReasonDestSelf}
	default:
		return c
	}
}

// nameKind says how the guard treats a name before any look-up.
type nameKind uint8

const (
	// nameUnjudged is the zero value: the name has not been classified.
	nameUnjudged nameKind = iota
	namePublic
	// nameLocal needs a rule with resolves_to.
	nameLocal
	// nameNever and nameMetadata can't be opened.
	nameNever
	nameMetadata
)

var neverNames = map[string]nameKind{
	"metadata":                   nameMetadata,
	"metadata.goog":              nameMetadata,
	"metadata.google.internal":   nameMetadata,
	"metadata.azure.internal":    nameMetadata,
	"metadata.tencentyun.com":    nameMetadata,
	"instance-data":              nameMetadata,
	"instance-data.ec2.internal": nameMetadata,
	"kubernetes.default.svc":     nameNever,
	"broadcasthost":              nameNever,
}

// localSuffixes are top-level names that have no meaning outside the local
// network (RFC 6761, 6762 and the reservation of .internal) or that must not
// reach DNS (RFC 7686).
var localSuffixes = map[string]nameKind{
	"localhost":   nameLocal,
	"localdomain": nameLocal,
	"local":       nameLocal,
	"internal":    nameLocal,
	"onion":       nameNever,
}

// classifyName judges a canonical name. Names below a metadata name are judged
// like it.
func classifyName(name string) nameKind {
	for rest := name; ; {
		if k, ok := neverNames[rest]; ok && (rest == name || k == nameMetadata) {
			return k
		}
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			break
		}
		rest = rest[i+1:]
	}
	// Programs look for wpad and isatap below every search domain, and what
	// answers could set their proxy or their tunnel.
	if first, _, _ := strings.Cut(name, "."); first == "wpad" || first == "isatap" {
		return nameNever
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == name {
		return nameLocal
	}
	if k, ok := localSuffixes[last]; ok {
		return k
	}
	if strings.HasSuffix(name, ".home.arpa") || name == "home.arpa" { // RFC 8375
		return nameLocal
	}
	return namePublic
}
