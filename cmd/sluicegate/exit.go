package main

import (
	"errors"

	"sluicegate/internal/control"
)

// Exit codes of every command.
const (
	exitOK          = 0
	exitFailed      = 1 // a check said no, or the command failed
	exitUsage       = 2
	exitUnreachable = 3 // no daemon answers
	exitDegraded    = 4
)

// exitError carries an exit code; text may be empty when everything was said.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// usageError is a mistake in flags or arguments.
func usageError(text string) error { return &exitError{exitUsage, text} }

// exitCode maps the error of a command.
func exitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, control.ErrUnreachable):
		return exitUnreachable
	default:
		return exitFailed
	}
}
