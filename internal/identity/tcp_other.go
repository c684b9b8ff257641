//go:build !linux

package identity

import "net/netip"

const tcpSupported = false

// TCP returns an unknown peer with [HowUnsupported] and no error: the look-up
// for this operating system (macOS: libproc, Windows: GetExtendedTcpTable)
// arrives later. It is safe for concurrent use.
func TCP(_, _ netip.AddrPort) (Peer, error) {
	return Peer{How: HowUnsupported}, nil
}
