package cli

import (
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/cmd/caisson/internal/views"
)

// RemoveEach goes on past failures, tells what was removed, and returns what
// was not.
func (a *App) RemoveEach(refs []string, remove func(ref string) (string, error)) error {
	removed := []string{}
	var errs []error
	for _, ref := range refs {
		id, err := remove(ref)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ref, err))
			continue
		}
		removed = append(removed, id)
	}
	var told error
	switch {
	case a.Output == FormatTable:
		for _, id := range removed {
			told = errors.Join(told, a.PrintLine("%s", id))
		}
	case len(errs) == 0:
		told = a.PrintJSON(struct {
			Removed []string `json:"removed"`
		}{removed})
	}
	return FailedEach(errs, told, views.PartView{Removed: removed}, len(removed))
}

// FailedEach is the outcome of a call that did something for each of several and
// failed for those of errs; done is how many it did it for, which part tells.
func FailedEach(errs []error, told error, part views.PartView, done int) error {
	err := errors.Join(append(errs, told)...)
	if len(errs) == 1 {
		err = errors.Unwrap(errs[0])
	}
	if len(errs) == 0 || done == 0 {
		return err
	}
	return &partError{err, part}
}
