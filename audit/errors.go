package audit

// constError is an error that is a constant, so that no code can assign to a
// sentinel.
type constError string

// Error implements error.
func (e constError) Error() string { return string(e) }

// Errors of the log. They are wrapped: test with errors.Is.
const (
	// ErrStorage is returned by [Log.Record] when the line is not in the file,
	// or, with [SyncAlways], not known to be on the disk.
	ErrStorage constError = "audit record not stored"
	// ErrClosed is returned by [Log.Record] after [Log.Close]; the line was
	// not written.
	ErrClosed constError = "audit log is closed"
	// ErrLocked is returned by [Open] while another process has the log open.
	ErrLocked constError = "audit log is in use"
)

// Errors of [CheckLine] and [Parse].
const (
	// ErrNotRecord is a line that doesn't have the form of a record: torn,
	// foreign, or edited in its last fields.
	ErrNotRecord constError = "not an audit record"
	// ErrAltered is a record whose bytes are not the ones that were hashed.
	ErrAltered constError = "record was altered"
	// ErrChain is an unaltered record that doesn't follow the line before it:
	// a line between them is missing, or lines were moved or inserted.
	ErrChain constError = "record does not follow the line before it"
	// ErrSchema is a record of a schema that this program can't read.
	ErrSchema constError = "unknown audit schema"
)
