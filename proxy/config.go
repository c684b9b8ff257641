package proxy

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"
)

// Recorder takes audit records. Record blocks until the record is written; an
// error means that it is not. Healthy is false after a failed write until one
// succeeds. Both are called concurrently.
type Recorder interface {
	Record(ctx context.Context, e audit.Event) error
	Healthy() bool
}

// Query is one name to resolve.
type Query struct {
	// Profile asks, Rule allowed the name ("" for an open network), Flow joins
	// the query to the records of the request.
	Profile, Rule, Flow string
	// Name is in canonical form, without trailing dot.
	Name string
}

// Answer is what a name resolved to.
type Answer struct {
	// Addrs are all addresses, IPv4 and IPv6, in the order to try.
	Addrs []netip.Addr
}

// Resolver resolves a name that the policy allows. An error with a method
// Timeout() bool that returns true is a timeout; one with PolicyReason()
// policy.Reason that returns cname_not_allowed is a refusal. An empty answer is
// an error.
type Resolver interface {
	Resolve(ctx context.Context, q Query) (Answer, error)
}

// Peer is who owns the other end of an accepted connection.
type Peer struct {
	// UID is the owner of the client's socket, valid if UIDKnown.
	UID      uint32
	UIDKnown bool
	// User is the owner's name, "" if not known.
	User string
	// Entitled says whether this user may use the gate's listeners.
	Entitled bool
}

// Identifier finds the peer of an accepted TCP connection. It must return
// quickly and is called concurrently.
type Identifier interface {
	Identify(local, remote netip.AddrPort) Peer
}

// Limits bound what clients can use up. A zero field takes its default.
type Limits struct {
	// Connections of all profiles together; default 8192.
	Connections int
	// PerProfile connections; default 4096.
	PerProfile int
	// HeaderBytes of one request head; default 64 KiB.
	HeaderBytes int
	// Dial is for look-up and connect together; default 10 s.
	Dial time.Duration
	// Idle ends a tunnel, a body or a response on which nothing moves; default
	// 10 minutes.
	Idle time.Duration
	// HalfClosed ends a tunnel of which one side has closed and the other is
	// silent; default 30 s.
	HalfClosed time.Duration
	// Handshake is for a request head to arrive; default 10 s.
	Handshake time.Duration
	// Hello is for the ClientHello that a tunnel to port 443 begins with;
	// default 5 s.
	Hello time.Duration
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	defTime := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Connections, 8192)
	def(&l.PerProfile, 4096)
	def(&l.HeaderBytes, 64<<10)
	defTime(&l.Dial, 10*time.Second)
	defTime(&l.Idle, 10*time.Minute)
	defTime(&l.HalfClosed, 30*time.Second)
	defTime(&l.Handshake, 10*time.Second)
	defTime(&l.Hello, 5*time.Second)
	return l
}

// Detail is how much a refusal tells the client.
type Detail string

// Details, from least to most. The zero value is DetailReason.
const (
	DetailNone   Detail = "none"
	DetailReason Detail = "reason"
	DetailRule   Detail = "rule"
)

// Allowed is which records allowed traffic leaves. The zero value is AllowedAll.
type Allowed string

// Values of Allowed.
const (
	AllowedOff    Allowed = "off"
	AllowedClosed Allowed = "closed"
	AllowedAll    Allowed = "all"
)

// Config is what a Server needs. Fields without a default must not be nil.
type Config struct {
	// Snapshot returns the policy of the moment; it may return nil, which
	// denies everything. It is called once for each request.
	Snapshot func() *policy.Snapshot
	// Local returns what is known of this machine; nil knows nothing.
	Local func() *policy.LocalSet

	Recorder   Recorder
	Resolver   Resolver
	Identifier Identifier

	Limits Limits
	// Detail of refusals; default DetailReason.
	Detail Detail
	// Allowed records; default AllowedAll.
	Allowed Allowed
	// AllowUnrecorded lets allowed traffic pass while records can't be written
	// (audit.on_failure: allow). The default refuses it.
	AllowUnrecorded bool
	// PolicySource returns what records name as the policy's source: embedded or
	// the policy folder; nil names none. It is called for every record.
	PolicySource func() string

	// Logger for operators; nil discards.
	Logger *slog.Logger

	// testOnlyDial replaces the connect below ControlContext: it gets the
	// dialer with its control function set and the judged address.
	testOnlyDial func(ctx context.Context, d *net.Dialer, addr netip.AddrPort) (*net.TCPConn, error)
	// testOnlyNow replaces the clock.
	testOnlyNow func() time.Time
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.withDefaults()
	if c.Detail == "" {
		c.Detail = DetailReason
	}
	if c.Allowed == "" {
		c.Allowed = AllowedAll
	}
	if c.Local == nil {
		c.Local = func() *policy.LocalSet { return nil }
	}
	if c.PolicySource == nil {
		c.PolicySource = func() string { return "" }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.testOnlyDial == nil {
		c.testOnlyDial = dialTCP
	}
	if c.testOnlyNow == nil {
		c.testOnlyNow = time.Now
	}
	return c
}
