// Package audit is the record of what the gate refused, let through and did to
// itself: one JSON object a line, schema sluicegate.audit/1, each line chained
// by hash to the one before it.
//
// Audit is not logging. [Log.Record] returns an error and blocks until the
// write that holds the line has returned, so that a caller can refuse a request
// it cannot record, and so that a denial a client saw is never missing after a
// crash of the process. The operator's log (package log/slog) is separate and
// may lose lines; this one may not lose any without saying so in a record.
//
// # What a reader of the files can rely on
//
// A line is printable ASCII and at most [MaxRecord] bytes long; what was cut to
// fit is named under "truncated". Lines are numbered from 1 without holes, over
// files and restarts, and each carries the hash of the one before ([CheckLine]).
// The first line of a file that follows another one is audit.rotated, and it
// names that file.
//
// Before the first line after a loss stands an audit.gap. It counts, by event,
// the lines that could not be written (their numbers are not used up: nobody has
// seen them), the lines that an fsync failed for, and the bytes and lines that
// the log found at start and could not read. It never removes or repairs those.
//
// An audit.rotated without a file name says that the live file was moved,
// deleted, replaced or cut by another program while it was open. The lines up to
// its last_seq were written to that file, wherever it is now; the chain goes on
// behind them.
//
// The chain shows edits and holes. It doesn't show a tail that was cut off, nor
// a whole chain written anew by somebody who may write the file: that takes a
// witness elsewhere, for which [Stats] has the last number and hash.
//
// What is not here: who decides (package policy), what a client is told
// (package proxy), where the file lives and when the log opens (internal/daemon).
package audit
