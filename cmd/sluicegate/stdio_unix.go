//go:build unix

package main

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/term"
)

// isClosedPipe tells whether a write failed because nobody reads any more.
func isClosedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// understandsColour tells whether f is a terminal that takes escape sequences.
func understandsColour(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
