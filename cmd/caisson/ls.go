package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// commandCell is how much of a command line fits in a table.
const commandCell = 40

func (a *app) lsCommand() *cobra.Command {
	var labels []string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list", "ps"},
		Short:   "List the sandboxes",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := parser{flags: cmd.Flags()}
			req := &caissonv1.ListRequest{Labels: p.labels(labels)}
			if len(p.errs) > 0 {
				return p.errs[0]
			}
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			list, err := client.List(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.output == formatJSON {
				return a.printJSON(each(list.Sandboxes, sandboxViewOf))
			}
			return a.printTable([]string{"ID", "NAME", "STATE", "EXIT", "IMAGE", "CREATED", "COMMAND"}, each(list.Sandboxes, sandboxRow))
		},
	}
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only those with this label `K=V`")
	a.outputFlags(cmd)
	return cmd
}

func sandboxRow(s *caissonv1.Sandbox) []string {
	exit, name := "-", s.Name
	if s.Result != nil {
		exit = strconv.Itoa(int(s.Result.ExitCode))
	}
	if name == s.Id {
		name = ""
	}
	return []string{
		s.Id, orDash(name), s.State, exit, s.Image, timeCell(s.CreatedAt),
		shorten(strings.Join(s.Args, " "), commandCell),
	}
}
