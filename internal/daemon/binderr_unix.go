//go:build unix

package daemon

import (
	"errors"
	"syscall"
)

func inUse(err error) bool        { return errors.Is(err, syscall.EADDRINUSE) }
func notPermitted(err error) bool { return errors.Is(err, syscall.EACCES) }

// noSuchAddress tells that the host has no address of this family.
func noSuchAddress(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}
