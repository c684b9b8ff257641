// Package dnsguard is the one resolver that everything the gate dials goes
// through.
//
// It resolves names that the policy has already allowed and judges nothing:
// the caller judges every address of the answer (package policy) and dials a
// judged one (package proxy). Names are looked up as absolute names, so that no
// search domain can turn one name into another, and by Go's own resolver, so
// that no C library reads a name in its own way.
package dnsguard
