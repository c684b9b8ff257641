package control

import "fmt"

// sentinel is a constant error, to be compared with errors.Is.
type sentinel string

// Error returns the text of the sentinel.
func (s sentinel) Error() string { return string(s) }

const (
	// ErrRunning is returned by [Listen] if another daemon holds the socket.
	ErrRunning sentinel = "another sluicegate daemon is running"
	// ErrUntrustedPath is returned by [Listen] if the socket can't be made where
	// only we can touch it, or if what is there already is not ours to remove.
	ErrUntrustedPath sentinel = "untrusted control socket path"
	// ErrPath is returned by [Listen] and [Client.Get] if the path can't name a
	// socket: not absolute or too long.
	ErrPath sentinel = "unusable control socket path"
	// ErrUnreachable is returned by [Client.Get] if no daemon listens.
	ErrUnreachable sentinel = "no daemon"
	// ErrForeign is returned by [Client.Get] if the daemon at the socket belongs
	// to another user: it would not answer us, or is an impostor.
	ErrForeign sentinel = "the daemon belongs to another user"
)

// kindError has a text for people and a sentinel for programs; the text needn't
// repeat the sentinel.
type kindError struct {
	kind  sentinel
	text  string
	cause error // nil if there is none
}

func (e *kindError) Error() string        { return e.text }
func (e *kindError) Is(target error) bool { return target == e.kind }
func (e *kindError) Unwrap() error        { return e.cause }

// failf returns a kindError with a text and a cause, which may be nil.
func failf(kind sentinel, cause error, format string, args ...any) error {
	return &kindError{kind: kind, text: fmt.Sprintf(format, args...), cause: cause}
}

func errRunning(path string, cause error) error {
	return failf(ErrRunning, cause, "%s (control socket %s)", ErrRunning, path)
}

// APIError is a refusal or failure that the daemon answered with. Its fields
// come from [WriteError].
type APIError struct {
	// Status is the HTTP status, 300 or higher.
	Status int
	// Message says what is wrong; never empty.
	Message string
	// Hint says what to do about it, "" if the daemon doesn't know.
	Hint string
}

// Error returns the status and the message, without the hint: show that on a
// line of its own.
func (e *APIError) Error() string {
	return fmt.Sprintf("the daemon answered %d: %s", e.Status, e.Message)
}
