package identity

import "os"

// OwnUser is the rule of a single-user daemon: only the user who runs it is
// served. The zero value entitles nobody; get one from [Self]. It holds no
// cache and is safe for concurrent use.
type OwnUser struct {
	uid uint32
	set bool // keeps the zero value from meaning root
}

// Self returns the rule for the effective user of this process at the time of
// the call.
func Self() OwnUser { return OwnUser{uid: uint32(os.Geteuid()), set: true} }

// Supported says whether [TCP] can find the uid of a peer on this operating
// system. Where it is false, [OwnUser.Entitled] can't tell users apart on
// loopback TCP and says yes; show that to the operator (status, doctor).
func Supported() bool { return tcpSupported }

// UID returns the user id the rule is for, and false for the zero value and on
// operating systems without user ids.
func (o OwnUser) UID() (uint32, bool) { return o.uid, o.set && hasUserIDs }

// Entitled says whether p may be served: its uid is known and the own one.
//
// A peer whose uid could not be read is refused, whatever the reason, where
// [Supported] is true: Linux fails closed. Elsewhere a peer with
// [HowUnsupported] is served, because refusing would mean serving nobody; the
// folder permissions of a Unix socket are then the guard, and loopback TCP is
// open to every user of the host. A look-up that exists and failed is refused
// on every system.
func (o OwnUser) Entitled(p Peer) bool {
	return o.entitled(p, tcpSupported)
}

// entitled is Entitled with the platform as a parameter, so that the rule of
// the other systems is tested on this one.
func (o OwnUser) entitled(p Peer, supported bool) bool {
	switch {
	case !o.set:
		return false
	case p.Known:
		return p.UID == o.uid
	default:
		return !supported && p.How == HowUnsupported
	}
}
