package host

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func DaemonCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:                "daemon [flags of caissond]",
		Short:              "Run the daemon in the foreground (caissond)",
		Example:            "  caisson daemon\n  caisson daemon --config my.yaml",
		DisableFlagParsing: true, // all flags are caissond's
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := a.FindDaemon()
			if err != nil {
				return err
			}
			err = a.Exec(path, append([]string{cli.DaemonName}, args...), os.Environ())
			return sbxerr.Wrap(sbxerr.Binary, "caisson.daemon", fmt.Errorf("execute %s: %w", path, err))
		},
	}
}
