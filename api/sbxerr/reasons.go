package sbxerr

import (
	"errors"
	"fmt"
)

const (
	maxReasons = 16
	maxQuoted  = 200 // bytes
)

// Reasons collects why something is refused. All are told, because agents try
// again, but not more than anybody reads: one request can be wrong a million
// times. The zero value has none.
type Reasons struct {
	first []error
	more  int
}

// Add notes one reason; nil is none.
func (r *Reasons) Add(err error) {
	switch {
	case err == nil:
	case len(r.first) < maxReasons:
		r.first = append(r.first, err)
	default:
		r.more++
	}
}

// Err joins the first reasons, and says how many more there are; nil where there
// is none.
func (r *Reasons) Err() error {
	if r.more > 0 {
		return errors.Join(append(r.first[:maxReasons:maxReasons], fmt.Errorf("and %d more", r.more))...)
	}
	return errors.Join(r.first...)
}

// Clip cuts what a caller sent to a length that a message can quote.
func Clip(s string) string { return ClipTo(s, maxQuoted) }

// ClipTo cuts s to at most so many bytes, and marks that.
func ClipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const mark = "…"
	for most -= len(mark); most > 0 && s[most]&0xc0 == 0x80; most-- { // inside of a character
	}
	return s[:most] + mark
}
