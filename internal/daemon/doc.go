// Package daemon is the one place that wires the rooms together: it reads the
// settings and the policy, opens the audit log, binds the listeners, serves the
// control API, and stops everything in the reverse order.
//
// It decides nothing about traffic (package policy), speaks no protocol (package
// proxy) and prints nothing (cmd/sluicegate).
package daemon
