package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Error is a failure in the one form that every interface of caisson shows:
// the API as ErrorDetail, the CLI as {"error": …} or as lines of text.
type Error struct {
	Code    sbxerr.Code `json:"code"`
	Message string      `json:"message"` // what was refused or failed
	Cause   string      `json:"cause"`   // why, where something below said so
	Remedy  string      `json:"remedy"`  // what to do about it

	Class     sbxerr.Class `json:"class"`
	Retryable bool         `json:"retryable"`            // the same call may succeed later
	RequestID string       `json:"request_id,omitempty"` // of the call, where the daemon answered it
}

// Error renders the message, the cause and the code on one line.
func (e *Error) Error() string { return fmt.Sprintf("%s [%s]", e.text(), e.Code) }

func (e *Error) text() string {
	if e.Cause == "" {
		return e.Message
	}
	return e.Message + ": " + e.Cause
}

// Unwrap returns the code, so that errors.Is(err, sbxerr.NotFound) holds on
// both sides of the socket.
func (e *Error) Unwrap() error { return e.Code }

// Explain renders any error as an Error; nil stays nil. The operations and
// codes inside a chain are for the daemon's log and are left out of the text.
func Explain(err error) *Error {
	if err == nil {
		return nil
	}
	var known *Error
	if _, several := err.(interface{ Unwrap() []error }); !several && errors.As(err, &known) { // only the outermost
		return known
	}
	code := codeOf(err)
	row, _ := sbxerr.Describe(code)
	e := &Error{Code: code, Remedy: remedyOf(err, row), Class: row.Class, Retryable: row.Retryable && (sbxerr.Of(err) != code || sbxerr.Retryable(err))}
	e.Message, e.Cause = split(err)
	if e.Message == "" {
		e.Message = row.Summary
	}
	return e
}

// codeOf is sbxerr.Of, with a code for the two errors of contexts: whose time is over
// has not cancelled.
func codeOf(err error) sbxerr.Code {
	code := sbxerr.Of(err)
	switch {
	case code == sbxerr.Canceled && errors.Is(err, context.DeadlineExceeded):
		return sbxerr.Deadline
	case code != sbxerr.Unknown:
		return code
	case errors.Is(err, context.Canceled):
		return sbxerr.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return sbxerr.Deadline
	}
	return code
}

func remedyOf(err error, row sbxerr.Description) string {
	if remedy := sbxerr.RemedyOf(err); remedy != "" && sbxerr.Of(err) == row.Code {
		return remedy
	}
	return row.Remedy
}

// split parts the text of err where its outermost message ends and the text of
// the error that it wraps begins.
func split(err error) (message, cause string) {
	for {
		coded, ok := err.(*sbxerr.Error) // one layer at a time
		if !ok {
			break
		}
		err = coded.Err
	}
	if inner := errors.Unwrap(err); inner != nil {
		if message, ok := strings.CutSuffix(err.Error(), ": "+inner.Error()); ok {
			return message, plain(inner)
		}
	}
	return plain(err), ""
}

// plain is err's text without the operations and codes of the sbxerr.Errors in
// it, on one line.
func plain(err error) string {
	switch err := err.(type) { // one layer at a time
	case *sbxerr.Error:
		return plain(err.Err)
	case *Error:
		return err.text()
	}
	text := err.Error()
	switch err := err.(type) { // one layer at a time
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			text = plainWithin(text, inner)
		}
	case interface{ Unwrap() []error }:
		text = plainAmong(text, err.Unwrap())
	}
	return strings.ReplaceAll(text, "\n", "; ")
}

// plainWithin is text with its last mention of inner made plain.
func plainWithin(text string, inner error) string {
	said := inner.Error()
	if at := strings.LastIndex(text, said); at >= 0 {
		return text[:at] + plain(inner) + text[at+len(said):]
	}
	return text
}

// plainAmong is text with its mentions of several errors, which come in their
// order, made plain in one pass: there may be many.
func plainAmong(text string, several []error) string {
	var b strings.Builder
	for _, inner := range several {
		before, after, found := strings.Cut(text, inner.Error())
		if !found {
			continue
		}
		b.WriteString(before)
		b.WriteString(plain(inner))
		text = after
	}
	b.WriteString(text)
	return b.String()
}
