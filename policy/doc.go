// Package policy answers one question: may this profile reach this destination?
//
// It is pure: no sockets, no files, no clock, no logger. Everything it needs is
// handed in, so that the proxy, the DNS listener, the command line and a replay
// of old records all get the same answer from the same [Decide].
//
// # Model
//
// A product (for example claude-code) has profiles (process, commands); each
// profile has its own listener, which is its identity. A [Snapshot] is the
// compiled, immutable policy. A [Request] names a profile, a peer and a
// [Destination]; Decide is called once when the destination is known and again
// when its addresses are. A [Decision] carries action, reason and the rule.
//
// # Precedence, first match decides
//
//  1. malformed destination: never reaches Decide, see [ParseAuthority]
//  2. no policy, unknown profile, a local user who may not use the profile
//  3. network: blocked
//  4. the guard: always-local names and special-purpose addresses, unless a
//     rule names exactly this destination with these addresses
//  5. global deny rules
//  6. deny rules of the product
//  7. allow rules
//  8. the default: allowlist denies, open allows public destinations on ports
//     80 and 443; mode observe turns this deny into an observed allow
//
// The zero value denies everywhere: a nil Snapshot, a zero Request, a zero
// Decision, an unknown profile, an empty list.
//
// # Hosts in rules
//
// example.com is exactly that name; *.example.com is any depth below it and
// never the name itself; **.example.com is both. A rule without ports means 443
// for tunnels and 80 for plain HTTP. An IP literal needs an ip or cidr rule: no
// name rule matches one.
//
// What is not here: reading files and reloading (internal/daemon), resolving
// names (dnsguard), the wire (proxy), the record (audit).
package policy
