package policy

import (
	"net/netip"
	"time"
)

// Action is the outcome. The zero value denies.
type Action int

// Actions.
const (
	ActionDeny Action = iota
	ActionAllow
)

// Proto is the way a destination was asked for. It decides what a rule without
// ports covers.
type Proto string

// Protocols. SOCKS and the zero value are judged like CONNECT.
const (
	ProtoConnect Proto = "connect"
	ProtoSOCKS5  Proto = "socks5"
	ProtoSOCKS4  Proto = "socks4" // judged, and then refused
	ProtoHTTP    Proto = "http"
	ProtoDNS     Proto = "dns"
)

// Layer is where the deciding rule stands.
type Layer string

// Layers, from the strongest.
const (
	LayerBuiltin Layer = "builtin"
	LayerGlobal  Layer = "global"
	LayerProduct Layer = "product"
)

// Request is one question. Phases that are not known yet are absent, and Decide
// is called again when they are.
type Request struct {
	// Profile is the listener's profile, product/profile.
	Profile string
	// Entitled says that the local user who asks may use the profile.
	Entitled bool
	// Destination is what was asked for.
	Destination Destination
	Proto       Proto
	// Addrs are all the addresses of the destination; nil while it is not
	// resolved. For an IP literal the destination itself is judged as well.
	Addrs []netip.Addr
	// Hello is what the client of a tunnel said first; nil while that is not
	// known, and where no TLS is expected.
	Hello *Hello
	// Local is what is known of this machine; nil knows nothing.
	Local *LocalSet
	// Now is the time of the question. The zero time ends mode observe.
	Now time.Time
}

// Decision is the answer. The zero value denies.
type Decision struct {
	Action Action
	// Reason is never empty after Decide.
	Reason Reason
	// Would is the reason of the denial that observe mode relaxed, else "".
	Would Reason
	// Rule decided; nil when a default or the guard did. Of a name that resolves
	// to other addresses than its resolves_to, and of a port that is not listed,
	// it is the rule that came nearest.
	Rule *Rule
	// Layer of the rule or of the default.
	Layer Layer
	// TLSAny says that a tunnel may carry what it likes: the rule has tls: any.
	// Otherwise it must begin with a ClientHello on port 443, and one that it
	// begins with elsewhere is judged too. ECHRefused is the rule's ech: refuse.
	TLSAny, ECHRefused bool
	// Range and Addr are the special-purpose range and the address that the
	// guard refused, or what a grant allowed; "" and zero otherwise.
	Range string
	Addr  netip.Addr
	// Detail is a constant sentence where the reason alone says too little.
	Detail string
	// Profile is the profile's description; zero if there is none.
	Profile Profile
	// Digest is the policy that decided.
	Digest string
}

// Allowed tells whether the action is to allow.
func (d *Decision) Allowed() bool { return d.Action == ActionAllow }

// Observed tells whether only observe mode let it through.
func (d *Decision) Observed() bool { return d.Would != "" }
