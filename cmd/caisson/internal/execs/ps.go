package execs

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func PsCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "ps SANDBOX",
		Short:             "List commands of a sandbox",
		Example:           "  caisson ps agent",
		Args:              sandboxOfPS,
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).Execs, args[0], func(list []*caissonv1.Exec) error {
				return cli.PrintList(a, list, []string{"EXEC", "STATE", "EXIT", "PID", "STARTED", "STDOUT", "STDERR", "COMMAND"}, func(e *caissonv1.Exec) []string { return execRow(a, e) })
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

// sandboxOfPS says where the sandboxes are listed, for elsewhere ps lists these.
func sandboxOfPS(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Usage("SANDBOX is missing: %s; caisson ls lists sandboxes", cmd.UseLine())
	}
	return cli.Exactly("SANDBOX")(cmd, args)
}

func execRow(a *cli.App, e *caissonv1.Exec) []string {
	exit := "-"
	if e.Result != nil {
		exit = strconv.Itoa(int(e.Result.ExitCode))
	}
	command := strings.Join(e.Args, " ")
	if a.Wide {
		return []string{e.Id, e.State, exit, cli.Decimal(e.Pid), cli.TimeCell(e.StartedAt), cli.Decimal(e.StdoutBytes), cli.Decimal(e.StderrBytes), command}
	}
	return []string{e.Id, e.State, exit, cli.Decimal(e.Pid), a.AgeCell(e.StartedAt), cli.SizeCell(e.StdoutBytes), cli.SizeCell(e.StderrBytes), cli.Shorten(command, cli.NarrowCell*2)}
}
