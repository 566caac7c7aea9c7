package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

func (a *App) rmCommand() *cobra.Command {
	var force bool
	var f filterFlags
	cmd := &cobra.Command{
		Use:               "rm [flags] SANDBOX...",
		Aliases:           []string{"remove"},
		Short:             "Remove sandboxes",
		Example:           "  caisson rm --force agent\n  caisson rm --session s-17 --state exited\n  caisson rm --all --force",
		Args:              cobra.ArbitraryArgs, // selected refuses none
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSelected(cmd, &f, args, func(ctx context.Context, client *api.Client, refs []string) error {
				return a.removeEach(refs, func(ref string) (string, error) {
					r, err := client.Remove(ctx, &caissonv1.RemoveRequest{Ref: ref, Force: force})
					if len(args) == 0 && sbxerr.Of(err) == sbxerr.NotFound { // it ended since it was listed, with its parent perhaps
						return ref, nil
					}
					return r.GetId(), err
				})
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "remove running sandboxes too")
	f.registerSelecting(cmd)
	a.outputFlags(cmd)
	return cmd
}

// removeEach goes on past failures, tells what was removed, and returns what
// was not.
func (a *App) removeEach(refs []string, remove func(ref string) (string, error)) error {
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
	case a.output == formatTable:
		for _, id := range removed {
			told = errors.Join(told, a.PrintLine("%s", id))
		}
	case len(errs) == 0:
		told = a.PrintJSON(struct {
			Removed []string `json:"removed"`
		}{removed})
	}
	return failedEach(errs, told, partView{Removed: removed}, len(removed))
}
