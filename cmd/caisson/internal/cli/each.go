package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
)

// RemoveNamed is the work of a verb that removes what its arguments name.
func (a *App) RemoveNamed(remove func(ctx context.Context, client *api.Client, name string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.With(cmd.Context(), func(client *api.Client) error {
			return a.RemoveEach(args, func(name string) (string, error) { return name, remove(cmd.Context(), client, name) })
		})
	}
}

// RemoveEach removes each of refs and prints those that it removed. It does not stop at a
// failure, and returns all errors.
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
	return FailedEach(errs, told, Part{Removed: removed}, len(removed))
}

// Part is what a call did that failed for others of what it was for.
type Part struct {
	Changed []Message `json:"changed,omitempty"`
	Removed []string  `json:"removed,omitempty"`
}

// FailedEach is the outcome of a call that did something for each of several and
// failed for those of errs; done is how many it did it for, which part tells.
func FailedEach(errs []error, told error, part Part, done int) error {
	err := errors.Join(append(errs, told)...)
	if len(errs) == 1 {
		err = errors.Unwrap(errs[0])
	}
	if len(errs) == 0 || done == 0 {
		return err
	}
	return &partError{err, part}
}
