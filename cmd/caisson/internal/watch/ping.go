package watch

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func PingCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ping [flags]",
		Short:   "Check whether the daemon can run something now",
		Long:    "Check whether the daemon can run something now. Exit with 1 if it cannot.",
		Example: "  caisson ping",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.With(cmd.Context(), func(client *api.Client) error {
				begin := time.Now()
				r, err := client.Ping(cmd.Context())
				if err != nil {
					return err
				}
				return printPing(a, r, time.Since(begin))
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func printPing(a *cli.App, r *caissonv1.PingResponse, took time.Duration) error {
	var err error
	switch {
	case a.Output == cli.FormatJSON:
		err = a.PrintJSON(r)
	case r.Ready:
		err = a.PrintLine("ready, answered in %.1f ms", float64(took.Microseconds())/1000)
	default:
		err = a.PrintLine("not ready: %s", cli.Printable(r.Reason))
	}
	if err == nil && !r.Ready {
		return cli.ExitStatus(1)
	}
	return err
}
