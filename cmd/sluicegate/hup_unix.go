//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// reloadSignal delivers SIGHUP, which asks for a reload of the policy.
func reloadSignal() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
