package daemon

import (
	"errors"

	"golang.org/x/sys/windows"
)

func inUse(err error) bool        { return errors.Is(err, windows.WSAEADDRINUSE) }
func notPermitted(err error) bool { return errors.Is(err, windows.WSAEACCES) }

// noSuchAddress tells that the host has no address of this family.
func noSuchAddress(err error) bool {
	return errors.Is(err, windows.WSAEADDRNOTAVAIL) || errors.Is(err, windows.WSAEAFNOSUPPORT)
}
