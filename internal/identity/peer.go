package identity

// Values of [Peer.How]. They are recorded in the audit log, so none is ever
// renamed.
const (
	// HowSockDiag: the kernel named the owner of the client's TCP socket.
	HowSockDiag = "sock_diag"
	// HowPeerCred: SO_PEERCRED of a Unix socket on Linux.
	HowPeerCred = "so_peercred"
	// HowLocalPeerCred: LOCAL_PEERCRED of a Unix socket on macOS.
	HowLocalPeerCred = "local_peercred"
	// HowNoSocket: no socket of this host is the client's end, because the
	// client is elsewhere or its socket is gone.
	HowNoSocket = "no_socket"
	// HowOrphaned: the client's socket exists, but no process holds it any
	// more, so it has no owner to name.
	HowOrphaned = "orphaned"
	// HowUnsupported: this operating system can't be asked yet.
	HowUnsupported = "unsupported"
)

// Peer is the user at the other end of a local connection. The zero value is an
// unknown peer, entitled to nothing.
type Peer struct {
	// UID is the user id of the peer; meaningful only if Known, otherwise 0.
	// Never read it without Known: 0 is root.
	UID uint32
	// Known says that the kernel vouches for UID.
	Known bool
	// How says where UID comes from or why there is none: one of the How
	// constants, "" in the zero value.
	How string
}
