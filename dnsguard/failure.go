package dnsguard

import (
	"context"
	"errors"
	"net"
	"os"

	"sluicegate/policy"
)

// Errors of [Resolver.Lookup] for a name that resolves to nothing. They are
// answers, not failures.
var (
	// ErrNoName is NXDOMAIN.
	ErrNoName = errors.New("the name does not exist")
	// ErrNoAddress is an answer without addresses.
	ErrNoAddress = errors.New("the name has no address")
)

// Error is a look-up that gave no answer. It quotes nothing an upstream sent.
type Error struct {
	// Reason is dns_error, dns_timeout, cname_not_allowed, loop, malformed_host
	// or internal.
	Reason policy.Reason
	// EDE is the Extended DNS Error that says most, RFC 8914; 0 for that of the
	// reason.
	EDE int
	// Err is the cause, for the operator.
	Err error
}

// PolicyReason is the reason, for callers that do not know this package.
func (e *Error) PolicyReason() policy.Reason { return e.Reason }

// Error returns the reason and the cause.
func (e *Error) Error() string {
	return "looking up a name: " + string(e.Reason) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout tells whether nobody answered in time.
func (e *Error) Timeout() bool { return e.Reason == policy.ReasonDNSTimeout }

// rcodeError is an upstream that answered with a failure.
type rcodeError struct{ rcode int }

func (e *rcodeError) Error() string { return "the server answered " + rcodeName(e.rcode) }

var (
	errAllOwn    = errors.New("every DNS server is this gate itself")
	errBadName   = errors.New("not a canonical name")
	errPanic     = errors.New("a fault in the resolver")
	errNoAnswer  = errors.New("no DNS server answered")
	errTooLarge  = errors.New("the answer is too large")
	errExhausted = errors.New("too many answers to other questions")
)

// classify turns the failure of an attempt into an Error. nil stays nil.
func classify(err error) error {
	var done *Error
	var target *targetError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &done):
		return done
	case errors.As(err, &target):
		return &Error{Reason: target.reason, Err: err}
	case errors.Is(err, errAllOwn):
		return &Error{Reason: policy.ReasonLoop, Err: err}
	case errors.Is(err, errBadName):
		return &Error{Reason: policy.ReasonMalformedHost, Err: err}
	case errors.Is(err, errPanic):
		return &Error{Reason: policy.ReasonInternal, Err: err}
	case errors.Is(err, errMalformed), errors.Is(err, errLoop), errors.Is(err, errTooLarge), errors.Is(err, errExhausted):
		return &Error{Reason: policy.ReasonDNSError, EDE: edeInvalidData, Err: err}
	case isTimeout(err):
		return &Error{Reason: policy.ReasonDNSTimeout, EDE: edeNetworkError, Err: err}
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return &Error{Reason: policy.ReasonDNSError, EDE: edeNetworkError, Err: err}
	}
	return &Error{Reason: policy.ReasonDNSError, EDE: edeUnreachable, Err: err}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errNoAnswer) ||
		errors.As(err, &timeout) && timeout.Timeout()
}
