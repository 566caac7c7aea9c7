// Package volumes has the verbs of volumes.
package volumes

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func VolumeCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume",
		Short: "Manage volumes",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(volumeCreateCommand(a), volumeLsCommand(a), volumeInspectCommand(a), volumeRmCommand(a), volumePruneCommand(a))
	return cmd
}

func volumeCreateCommand(a *cli.App) *cobra.Command {
	var size string
	cmd := &cobra.Command{
		Use:     "create VOLUME",
		Short:   "Create a volume",
		Long:    "Create a volume, a directory that outlives sandboxes. The first sandbox that mounts one\ncreates it, too. With --size it holds no more than that.",
		Example: "  caisson volume create --size 1G cache\n  caisson run --mount type=volume,src=cache,dst=/cache -- touch /cache/made",
		Args:    cli.Exactly("VOLUME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &caissonv1.CreateVolumeRequest{Name: args[0]}
			if err := setSize(req, size); err != nil {
				return err
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).CreateVolume, req, func(v *caissonv1.Volume) error {
				if a.Output == cli.FormatJSON {
					return a.PrintJSON(v)
				}
				return a.PrintLine("%s", cli.Printable(v.Name))
			})
		},
	}
	cmd.Flags().StringVar(&size, "size", "", "what it can hold, SIZE[,FILES], such as 1G or 1G,100000; default the daemon's sandboxes.volume_size")
	a.OutputFlags(cmd)
	return cmd
}

// setSize reads SIZE[,FILES].
func setSize(req *caissonv1.CreateVolumeRequest, text string) error {
	if text == "" {
		return nil
	}
	bytes, inodes, both := strings.Cut(text, ",")
	n, err := units.ParseSize(bytes)
	if err == nil && both {
		req.Inodes, err = units.ParseCount(inodes)
	}
	req.SizeBytes = &n
	return err
}

func volumeLsCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List volumes",
		Example: "  caisson volume ls",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).ListVolumes, &caissonv1.ListVolumesRequest{}, func(r *caissonv1.ListVolumesResponse) error {
				return cli.PrintList(a, r.Volumes, []string{"NAME", "OWNER", "USED", "SIZE", "CREATED", "USED BY"}, func(v *caissonv1.Volume) []string { return volumeRow(a, v) })
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func volumeRow(a *cli.App, v *caissonv1.Volume) []string {
	created := a.AgeCell(v.CreatedAt)
	if a.Wide {
		created = cli.TimeCell(v.CreatedAt)
	}
	used, size := "", ""
	if v.SizeBytes != 0 {
		used, size = cli.SizeCell(v.UsedBytes), cli.SizeCell(v.SizeBytes)
	}
	return []string{v.Name, cli.Decimal(int64(v.Owner)), used, size, created, strings.Join(v.UsedBy, ", ")}
}

func volumeInspectCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect VOLUME",
		Short:             "Show details of a volume as JSON",
		Example:           "  caisson volume inspect deps",
		Args:              cli.Exactly("VOLUME"),
		ValidArgsFunction: completeVolumes(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).InspectVolume, &caissonv1.InspectVolumeRequest{Name: args[0]}, func(v *caissonv1.Volume) error {
				return a.PrintJSON(v)
			})
		},
	}
	a.JsonOnly(cmd)
	return cmd
}

func volumeRmCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm VOLUME...",
		Aliases:           []string{"remove"},
		Short:             "Remove volumes that no sandbox uses",
		Example:           "  caisson volume rm deps",
		Args:              cli.AtLeastOne("VOLUME"),
		ValidArgsFunction: completeVolumes(a),
		RunE: a.RemoveNamed(func(ctx context.Context, client *api.Client, name string) error {
			_, err := client.RemoveVolume(ctx, &caissonv1.RemoveVolumeRequest{Name: name})
			return err
		}),
	}
	a.OutputFlags(cmd)
	return cmd
}

func volumePruneCommand(a *cli.App) *cobra.Command {
	req := &caissonv1.PruneVolumesRequest{}
	cmd := &cobra.Command{
		Use:     "prune",
		Short:   "Remove all unused volumes",
		Long:    "Remove all of your volumes that no sandbox uses, with the files in them.",
		Example: "  caisson volume prune",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).PruneVolumes, req, func(r *caissonv1.PruneVolumesResponse) error { return printPrunedVolumes(a, r) })
		},
	}
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "show what would be removed, and remove nothing")
	a.OutputFlags(cmd)
	return cmd
}

func printPrunedVolumes(a *cli.App, r *caissonv1.PruneVolumesResponse) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(r)
	}
	for _, v := range r.Volumes {
		if err := a.PrintLine("%s", cli.Printable(v.Name)); err != nil {
			return err
		}
	}
	a.Progress(fmt.Sprintf("%d volumes", len(r.Volumes)))
	return nil
}

// completeVolumes offers the names of volumes.
func completeVolumes(a *cli.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.Complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
			r, err := c.ListVolumes(ctx, &caissonv1.ListVolumesRequest{})
			return cli.Each(r.GetVolumes(), (*caissonv1.Volume).GetName), err
		})
	}
}
