// Package identity says which user is at the other end of a local connection.
//
// The listener a client comes through decides which profile it gets; this
// package answers the second question, whether that user may use it. [TCP] and
// [Unix] ask the kernel, [OwnUser] judges the answer.
//
//	             TCP (loopback)                     Unix socket
//	Linux        NETLINK_SOCK_DIAG, one socket      SO_PEERCRED
//	macOS        unsupported, arrives later         LOCAL_PEERCRED
//	others       unsupported, arrives later         unsupported
//
// The answer names a user, never a program: which process holds the socket is
// evidence for the audit log and found elsewhere.
//
// Holes that are known and left open:
//   - The uid is that of the user who created the socket. A process that hands a
//     connected socket to another user lends its name with it.
//   - A kernel that can't express a uid in our user namespace reports the
//     overflow uid (65534). A daemon that runs as 65534 in such a namespace would
//     take strangers for itself: don't run it there (systemd: no PrivateUsers).
//   - The kernel looks in the network namespace the process started in. A client
//     in another one is reported as whoever relays its connection, or not found.
//   - A client bound to a device (SO_BINDTODEVICE) isn't found, so not entitled.
//   - A client that resets its connection frees the port pair; a look-up after
//     that may find a newer connection of another user with the very same ports.
//     Its own reset connection carries no answer any more.
//
// What is not here: profiles and verdicts (package policy), what a refused
// client is told (package proxy).
package identity
