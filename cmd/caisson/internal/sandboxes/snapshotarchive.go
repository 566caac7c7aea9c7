package sandboxes

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func snapshotExportCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "export SNAPSHOT FILE|-",
		Short: "Write a snapshot to an archive",
		Long: "Write a snapshot to a tar archive, an OCI image layout: the changes to its image, the\nenvironment, labels, profile and network policy. The image is not in it. The file is replaced\n" +
			"when all is written.",
		Example: "  caisson snapshot export installed installed.tar\n  caisson snapshot export installed - | ssh other caisson snapshot import -",
		Args:    cli.Exactly("SNAPSHOT", "FILE|-"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return completeSnapshots(a)(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(cmd.Context(), func(client *api.Client) error {
				return a.SaveArchive(args[1], func(w io.Writer) error {
					return client.ExportSnapshot(cmd.Context(), &caissonv1.ExportSnapshotRequest{Name: args[0]}, w)
				})
			})
		},
	}
}

func snapshotImportCommand(a *cli.App) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "import [--name NAME] FILE|-",
		Short:   "Make a snapshot from an archive",
		Long:    "Make a snapshot from an archive that snapshot export wrote, and print its name. The daemon\nhas the image with the digest that the archive names. This program reads the file and sends it.",
		Example: "  caisson snapshot import installed.tar\n  caisson create --from installed",
		Args:    cli.Exactly("FILE|-"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("name") && name == "" {
				return cli.Usage("--name is empty: leave it out for the name that the snapshot had")
			}
			archive, err := a.OpenArchive(args[0])
			if err != nil {
				return err
			}
			defer archive.Close()
			return importSnapshot(a, cmd.Context(), name, archive)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the snapshot (default: that which it had)")
	a.OutputFlags(cmd)
	return cmd
}

func importSnapshot(a *cli.App, ctx context.Context, name string, archive io.Reader) error {
	return a.With(ctx, func(client *api.Client) error {
		sent, done := a.Sending("sent", archive, cli.SizeOf(archive))
		s, err := client.ImportSnapshot(ctx, name, sent)
		done()
		if err != nil {
			return err
		}
		return printSnapshot(a, s)
	})
}

// printSnapshot prints the name of a snapshot that was made.
func printSnapshot(a *cli.App, s *caissonv1.Snapshot) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(s)
	}
	return a.PrintLine("%s", cli.Printable(s.Name))
}
