// Package dnsguard is the DNS side of the gate: listeners that answer the names
// a profile may know, and the one resolver that everything the gate dials goes
// through.
//
// A query is judged before anything else happens. What is not allowed never
// reaches an upstream in any form; what is allowed is asked anew from the
// canonical name and the type, so that no byte of a client's packet travels on.
// Every address that comes back is judged by package policy, and one bad
// address refuses the answer as a whole.
//
//	listener.go  sockets, and what the DNS library may do on them (stream.go)
//	query.go     reads a client's packet
//	serve.go     judges one query and answers it (special.go, refusal.go, record.go)
//	resolver.go  resolves an allowed name (flight.go, race.go, exchange.go, system.go)
//	answer.go    reads an upstream's packet
//	wire.go      names and headers as they are on the wire
//	codec.go     writes packets
//
// Everything that comes from outside is read here, byte by byte and within
// bounds; the DNS library only writes packets and runs the sockets. It would
// hand over names as text, in which a dot or an escape can stand for two
// things, and it reads leniently where a gate must not.
//
// What is not here: who decides (package policy), the record (audit),
// connections (proxy). There is no cache: a decision never outlives its policy,
// and the upstream has one.
package dnsguard
