//go:build !windows

package dnsguard

// Where the machine's own settings stand.
const (
	resolvConf = "/etc/resolv.conf"
	hostsFile  = "/etc/hosts"
)
