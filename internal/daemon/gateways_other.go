//go:build !linux

package daemon

import "net/netip"

// gateways knows none here; the address table still refuses private ones.
func gateways() []netip.Addr { return nil }
