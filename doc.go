// Package sluicegate holds no code; it says how the repository is laid out, and
// its tests guard that layout. Sluicegate is the gate through which AI agents on
// a workstation reach the network: one daemon that is their HTTP, SOCKS5 and DNS
// proxy, allows what the policy of each agent product lists, and records every
// refusal. Each folder is a room with one subject, and imports go one way only:
// policy (the pure decision) imports nothing of ours; audit (the record) imports
// policy; dnsguard (names) and proxy (connections) import those two and not each
// other; internal/identity and internal/control stand beside them; internal/pair
// knows the settings of the products that use the gate, and nothing of the gate;
// internal/daemon wires all of it together and owns start, reload and stop;
// cmd/sluicegate turns flags into calls and is imported by nobody; configs is the
// shipped policy as embedded files. A forbidden import fails the tests of this
// package with the reason.
package sluicegate
