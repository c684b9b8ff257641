package daemon

import "golang.org/x/sys/windows"

// What the system says when a listener can't be made.
const (
	errInUse      = windows.WSAEADDRINUSE
	errPermission = windows.WSAEACCES
	errNoAddress  = windows.WSAEADDRNOTAVAIL
)
