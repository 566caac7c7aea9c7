package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *app) rmCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:               "rm [--force] SANDBOX...",
		Aliases:           []string{"remove"},
		Short:             "Remove sandboxes",
		Args:              atLeastOne("SANDBOX"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(client *api.Client) error {
				return a.removeEach(args, func(ref string) (string, error) {
					r, err := client.Remove(cmd.Context(), &caissonv1.RemoveRequest{Ref: ref, Force: force})
					return r.GetId(), err
				})
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "remove running sandboxes too")
	a.outputFlags(cmd)
	return cmd
}

// removeEach goes on past failures, tells what was removed, and returns what
// was not.
func (a *app) removeEach(refs []string, remove func(ref string) (string, error)) error {
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
			told = errors.Join(told, a.printLine("%s", id))
		}
	case len(errs) == 0:
		told = a.printJSON(struct {
			Removed []string `json:"removed"`
		}{removed})
	}
	return failedEach(errs, told, partView{Removed: removed}, len(removed))
}
