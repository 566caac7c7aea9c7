// Package settings is the list of what a sandbox can be given, as data. Flags, profiles,
// ceilings of peers, plans, updates and kinds of pools are made from it. To add a limit, add
// its field to the API's Limits, a field to Limits and a row to Table, and have package
// cgroups or oci enforce it.
package settings

import (
	"errors"
	"fmt"
	"math"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
)

// Defaults are the limits of the built-in profiles.
func Defaults() (l Limits) {
	for i := range Table {
		*Table[i].Of(&l) = Table[i].Default
	}
	return l
}

// Ceilings are those of a listed peer whose entry names none.
func Ceilings() (l Limits) {
	for i := range Table {
		*Table[i].Of(&l) = Table[i].Ceiling
	}
	return l
}

// Endless are ceilings that no limit exceeds.
func Endless() (l Limits) {
	for i := range Table {
		if Table[i].Zero != Unbounded {
			*Table[i].Of(&l) = math.MaxInt64
		}
	}
	return l
}

// Filled returns l with defaults in place of limits that an older daemon did not record.
func (l Limits) Filled() Limits {
	for i := range Table {
		if n := Table[i].Of(&l); *n == 0 && Table[i].Zero == Unset {
			*n = Table[i].Default
		}
	}
	return l
}

// Override sets what asked names.
func (l *Limits) Override(asked *caissonv1.Limits) {
	for i := range Table {
		if n := Table[i].In(asked); n != nil {
			*Table[i].Of(l) = *n
		}
	}
}

// Exceeding returns the limits of l that are above top.
func (l Limits) Exceeding(top Limits) (above []*Limit) {
	for i := range Table {
		row := &Table[i]
		n, most := *row.Of(&l), *row.Of(&top)
		free := row.Zero == Unbounded && most == 0
		if !free && (n > most || row.Zero == Unbounded && n == 0) {
			above = append(above, row)
		}
	}
	return above
}

// AtMost returns the lower of each two limits.
func (l Limits) AtMost(top Limits) Limits {
	for i := range Table {
		row := &Table[i]
		n, most := row.Of(&l), *row.Of(&top)
		switch {
		case row.Zero == Unbounded && (*n == 0 || most == 0):
			*n = max(*n, most)
		default:
			*n = min(*n, most)
		}
	}
	return l
}

// Kind returns the limits that a ready sandbox must have been made with, and no others.
func (l Limits) Kind() (kind Limits) {
	for i := range Table {
		if Table[i].Kind {
			*Table[i].Of(&kind) = *Table[i].Of(&l)
		}
	}
	return kind
}

// KindOf returns a request for those limits of asked that make the kind of a ready sandbox.
func KindOf(asked *caissonv1.Limits) *caissonv1.Limits {
	kind := &caissonv1.Limits{}
	for i := range Table {
		if Table[i].Kind {
			*Table[i].Asked(kind) = Table[i].In(asked)
		}
	}
	return kind
}

// Changes returns the limits that r changes; nil is none.
func Changes(r *caissonv1.UpdateRequest) (asked *caissonv1.Limits) {
	for i := range Table {
		row := &Table[i]
		if row.Change == nil || *row.Change(r) == nil {
			continue
		}
		if asked == nil {
			asked = &caissonv1.Limits{}
		}
		*row.Asked(asked) = *row.Change(r)
	}
	return asked
}

// Message returns l for the API. What has no bound, or is not there, is absent.
func (l Limits) Message() *caissonv1.Limits {
	m := &caissonv1.Limits{}
	for i := range Table {
		row := &Table[i]
		if n := *row.Of(&l); n != 0 || row.Zero != Unbounded && row.Zero != None {
			*row.Asked(m) = &n
		}
	}
	return m
}

// In returns what asked, which may be nil, says of this limit; nil is nothing.
func (l *Limit) In(asked *caissonv1.Limits) *int64 {
	if asked == nil {
		return nil
	}
	return *l.Asked(asked)
}

// ParseChange reads what an update may ask for: "unbounded" takes a bound away, which is 0.
func (l *Limit) ParseChange(text string) (int64, error) {
	if l.Zero == Unbounded && text == "unbounded" {
		return 0, nil
	}
	return l.Unit.Parse(text)
}

// Check refuses a value out of range. 0 is in range where it has a meaning.
func (l *Limit) Check(n int64) error {
	switch {
	case n == 0 && l.Zero != Refused, n >= l.Min && n <= l.Max:
		return nil
	case l.Controller == "":
		return l.refuse(n)
	case n == 0:
		return fmt.Errorf("limit %q is absent or zero, which never means unlimited: give for example %s", l.Name, l.Example)
	case n < 0:
		return fmt.Errorf("limit %q is negative (%d): give for example %s", l.Name, n, l.Example)
	case n < l.Min:
		return fmt.Errorf("limit %q is %d, below the minimum of %d %s", l.Name, n, l.Min, l.Why)
	}
	return fmt.Errorf("limit %q is %d, above the maximum of %d", l.Name, n, l.Max)
}

// CheckNamed is Check for a limit that a request names: 0 is refused.
func (l *Limit) CheckNamed(n int64) error {
	if n == 0 && l.Zero != Refused {
		return l.refuse(0)
	}
	return l.Check(n)
}

func (l *Limit) refuse(n int64) error {
	text := l.Unit.Format
	if l.Unit == Bytes {
		text = units.FormatSize
	}
	return sbxerr.New(sbxerr.Limits, "settings.check", "%s %d: give %s to %s, such as %s", l.Name, n, text(l.Min), text(l.Max), l.Example)
}

// CheckZero refuses a request for 0 where that has a meaning in records alone. An update may
// ask for no bound.
func CheckZero(asked *caissonv1.Limits, update bool) error {
	var errs []error
	for i := range Table {
		row := &Table[i]
		n := row.In(asked)
		if n == nil || *n != 0 || row.Zero == Refused || row.Zero == Unbounded && update {
			continue
		}
		errs = append(errs, row.refuse(0))
	}
	return errors.Join(errs...)
}
