package watch

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// pingView is the JSON of a ping.
type pingView struct {
	Ready  bool    `json:"ready"`
	Reason string  `json:"reason"` // why nothing can be run
	TookMS float64 `json:"took_ms"`
}

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
				return printPing(a, pingView{r.Ready, r.Reason, float64(time.Since(begin).Microseconds()) / 1000})
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func printPing(a *cli.App, v pingView) error {
	var err error
	switch {
	case a.Output == cli.FormatJSON:
		err = a.PrintJSON(v)
	case v.Ready:
		err = a.PrintLine("ready, answered in %.1f ms", v.TookMS)
	default:
		err = a.PrintLine("not ready: %s", cli.Printable(v.Reason))
	}
	if err == nil && !v.Ready {
		return cli.ExitStatus(1)
	}
	return err
}
