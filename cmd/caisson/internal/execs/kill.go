package execs

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func KillCommand(a *cli.App) *cobra.Command {
	var name string
	var all bool
	cmd := &cobra.Command{
		Use:               "kill [-s SIGNAL] [--all] SANDBOX EXEC",
		Short:             "Send a signal to a command",
		Example:           "  caisson kill agent 3\n  caisson kill -s KILL --all agent 3",
		Args:              cli.Exactly("SANDBOX", "EXEC"),
		ValidArgsFunction: a.CompleteExecs,
		RunE: func(cmd *cobra.Command, args []string) error {
			signal, err := api.ParseSignal(name)
			if err != nil {
				return cli.Usage("--signal: %w", err)
			}
			err = a.With(cmd.Context(), func(client *api.Client) error {
				return client.Kill(cmd.Context(), args[0], args[1], signal, all)
			})
			if err != nil {
				return err
			}
			if a.Output == cli.FormatJSON {
				return a.PrintJSON(struct {
					Exec   string `json:"exec_id"`
					Signal int    `json:"signal"`
				}{args[1], int(signal)})
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&name, "signal", "s", "TERM", "`SIGNAL` by name or number")
	_ = cmd.RegisterFlagCompletionFunc("signal", cobra.FixedCompletions( // the flag is there
		[]string{"TERM", "KILL", "INT", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVar(&all, "all", false, "signal every process of the command")
	a.OutputFlags(cmd)
	return cmd
}
