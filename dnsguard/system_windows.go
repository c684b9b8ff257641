package dnsguard

// Windows keeps its settings in the registry: the system's own resolver is
// asked, which also reads the hosts file.
const (
	resolvConf = ""
	hostsFile  = ""
)
