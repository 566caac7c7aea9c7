// Package sbxerr defines the stable error codes of the sandbox runtime.
//
// Codes are part of the API: they are appended, never renumbered or reused.
// A Code is itself an error, so callers write errors.Is(err, sbxerr.Limits).
// The hundreds digit names the area: 0 internal, 1 request and configuration,
// 2 images and files, 3 seccomp, 4 network, 5 cgroups, 6 engine, 7 gateway,
// 8 API.
package sbxerr

import (
	"errors"
	"fmt"
)

// Code identifies one kind of failure. The string is the API.
type Code string

// Error makes a Code comparable with errors.Is.
func (c Code) Error() string { return string(c) }

// Error places a cause under a Code and the operation that met it.
type Error struct {
	Code   Code
	Op     string // package.verb: "netns.create"
	Err    error
	Remedy string // what to do about this very failure; empty uses the code's own
	Final  bool   // no retry of the same call can succeed, also where the code says so in general
}

// Error renders the operation, the code and the cause.
func (e *Error) Error() string { return fmt.Sprintf("%s [%s]: %v", e.Op, e.Code, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is e's Code.
func (e *Error) Is(target error) bool { return target == e.Code }

// Wrap puts err under code and op. A nil err stays nil.
func Wrap(code Code, op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: shortage(code, err), Op: op, Err: err}
}

// New makes an error of code met by op, with a formatted cause. %w works.
func New(code Code, op, format string, args ...any) error {
	return Wrap(code, op, fmt.Errorf(format, args...))
}

// WithRemedy makes an error like Wrap that says what to do about this very
// failure, where that is more exact than the code's general remedy.
func WithRemedy(code Code, op string, err error, remedy string) error {
	if err == nil {
		return nil
	}
	if shortage(code, err) != code {
		return Wrap(code, op, err) // the remedy is for something else
	}
	return &Error{Code: code, Op: op, Err: err, Remedy: remedy}
}

// Final is err, of which no retry of the same call can succeed. An err that is no *Error
// is returned as it is.
func Final(err error) error {
	e, ok := err.(*Error) // its outermost layer alone
	if !ok {
		return err
	}
	final := *e
	final.Final = true
	return &final
}

// Retryable reports whether the call that failed with err may succeed later without a change.
func Retryable(err error) bool {
	code := Of(err)
	var e *Error
	for next := err; errors.As(next, &e) && e.Code == code; next = e.Err {
		if e.Final {
			return false
		}
	}
	d, _ := Describe(code)
	return d.Retryable
}

// Of returns the outermost Code in err's tree, Unknown if there is none, and
// the empty Code for a nil err.
func Of(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	var c Code
	if errors.As(err, &c) {
		return c
	}
	return shortage(Unknown, err)
}

// RemedyOf returns what to do about err: the outermost specific remedy, else
// that of its code.
func RemedyOf(err error) string {
	var e *Error
	for next := err; errors.As(next, &e); next = e.Err {
		if e.Remedy != "" {
			return e.Remedy
		}
	}
	d, _ := Describe(Of(err))
	return d.Remedy
}
