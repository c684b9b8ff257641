//go:build unix

package control

import "golang.org/x/sys/unix"

// maxPath is sun_path without its final NUL: 107 on Linux, 103 on macOS.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1
