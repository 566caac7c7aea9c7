package imageproc

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Bounds of what a process says of its failure, in bytes.
const (
	maxFailure = 256 << 10
	maxRemedy  = 4 << 10
	maxCodes   = 16
)

// Failure is an error on its way to the other side.
type Failure struct {
	Code   sbxerr.Code   `json:"code"`
	Op     string        `json:"op,omitempty"` // empty: Text is all of the message
	Text   string        `json:"text"`
	Remedy string        `json:"remedy,omitempty"` // of this very failure
	Final  bool          `json:"final,omitempty"`
	Codes  []sbxerr.Code `json:"codes,omitempty"` // of what Text wraps
}

// FailureOf takes apart err.
func FailureOf(err error) Failure {
	f := Failure{Code: sbxerr.Of(err), Text: err.Error(), Codes: codesOf(err)}
	if d, _ := sbxerr.Describe(f.Code); sbxerr.RemedyOf(err) != d.Remedy {
		f.Remedy = sbxerr.RemedyOf(err)
	}
	if e, ok := err.(*sbxerr.Error); ok { // its outermost layer alone
		f.Op, f.Text, f.Final = e.Op, e.Err.Error(), e.Final
	}
	f.Text = clip(f.Text, maxFailure/2)
	return f
}

// codesOf lists the codes in the tree of err.
func codesOf(err error) (codes []sbxerr.Code) {
	if err == nil || len(codes) > maxCodes {
		return nil
	}
	if e, ok := err.(*sbxerr.Error); ok {
		codes = append(codes, e.Code)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		codes = append(codes, codesOf(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			codes = append(codes, codesOf(inner)...)
		}
	}
	return codes[:min(len(codes), maxCodes)]
}

// remote is an error of the process, with what it wrapped there.
type remote struct {
	text string
	tree []error
}

// Error implements error.
func (r *remote) Error() string { return r.text }

// Unwrap returns the codes.
func (r *remote) Unwrap() []error { return r.tree }

var operation = regexp.MustCompile(`^[a-z0-9_]{1,32}\.[a-z0-9_]{1,32}$`)

// Err puts f together again: with the same text, codes and remedy.
func (f Failure) Err() error {
	if _, known := sbxerr.Describe(f.Code); !known || f.Op != "" && !operation.MatchString(f.Op) || len(f.Remedy) > maxRemedy || len(f.Codes) > maxCodes {
		return fmt.Errorf("%w: a failure %.40q of %.40q", errBroken, f.Code, f.Op)
	}
	inner := &remote{text: printable(f.Text)}
	for _, c := range f.Codes {
		if _, known := sbxerr.Describe(c); known {
			inner.tree = append(inner.tree, c)
		}
	}
	of := &sbxerr.Error{Code: f.Code, Op: f.Op, Err: inner, Remedy: printable(f.Remedy), Final: f.Final}
	if f.Op == "" {
		of.Err = errors.New(inner.text)
		inner.tree = append([]error{of}, inner.tree...)
		return inner
	}
	return of
}

// printable is text without what a terminal obeys.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
