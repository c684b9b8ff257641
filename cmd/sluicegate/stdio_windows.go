//go:build windows

package main

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/windows"
)

// isClosedPipe tells whether a write failed because nobody reads any more.
func isClosedPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA) ||
		errors.Is(err, io.ErrClosedPipe)
}

// understandsColour tells whether f is a console that takes escape sequences. An
// old one shows them as text unless somebody switched it over.
func understandsColour(f *os.File) bool {
	var mode uint32
	err := windows.GetConsoleMode(windows.Handle(f.Fd()), &mode)
	return err == nil && mode&windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING != 0
}
