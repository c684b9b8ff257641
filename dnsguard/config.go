package dnsguard

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"
)

// Recorder takes audit records. Record blocks until the record is written; an
// error means that it is not. It is called concurrently. A Recorder that also
// has a method Healthy() bool is asked before an allowed name is resolved: false
// means that records can't be written.
type Recorder interface {
	Record(ctx context.Context, e audit.Event) error
}

// Peer is who asks.
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

// PacketIdentifier is an Identifier that also finds who sent a datagram. Without
// it every local user may ask over UDP: nothing tells them apart.
type PacketIdentifier interface {
	Identifier
	IdentifyPacket(local, remote netip.AddrPort) Peer
}

// Limits bound what clients of one profile can use up. A zero field takes its
// default.
type Limits struct {
	// Queries that are answered at one time; default 512. Half of them may wait
	// for an upstream, so that a dead one holds up no denial.
	Queries int
	// Connections over TCP; default 128. More are closed at once.
	Connections int
	// Idle ends a connection without a query; default 10 s.
	Idle time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.Queries == 0 {
		l.Queries = 512
	}
	if l.Connections == 0 {
		l.Connections = 128
	}
	if l.Idle == 0 {
		l.Idle = 10 * time.Second
	}
	return l
}

// ServerConfig is what a Server needs. Fields without a default must not be nil.
type ServerConfig struct {
	// Snapshot returns the policy of the moment; it may return nil, which denies
	// everything. It is called once for each query.
	Snapshot func() *policy.Snapshot
	// Local returns what is known of this machine; nil knows nothing.
	Local func() *policy.LocalSet

	Recorder   Recorder
	Resolver   *Resolver
	Identifier Identifier

	Limits Limits
	// HideReason leaves the reason out of the text for clients, which then has
	// the event's id alone (refusal_detail: none).
	HideReason bool
	// AllowUnrecorded answers allowed names while records can't be written
	// (audit.on_failure: allow). The default refuses them.
	AllowUnrecorded bool
	// PolicySource returns what records name as the policy's source: embedded or
	// the policy folder; nil names none. It is called for every record.
	PolicySource func() string

	// Logger for operators; nil discards.
	Logger *slog.Logger

	// testOnlyNow replaces the clock.
	testOnlyNow func() time.Time
}

func (c ServerConfig) withDefaults() ServerConfig {
	c.Limits = c.Limits.withDefaults()
	if c.Local == nil {
		c.Local = func() *policy.LocalSet { return nil }
	}
	if c.PolicySource == nil {
		c.PolicySource = func() string { return "" }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.testOnlyNow == nil {
		c.testOnlyNow = time.Now
	}
	return c
}
