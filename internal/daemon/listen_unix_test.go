//go:build unix

package daemon

import "syscall"

// What the system says when a listener can't be made.
const (
	errInUse      = syscall.EADDRINUSE
	errPermission = syscall.EACCES
	errNoAddress  = syscall.EADDRNOTAVAIL
)
