package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *App) volumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume",
		Short: "Manage volumes",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  ShowHelp,
	}
	cmd.AddCommand(a.volumeCreateCommand(), a.volumeLsCommand(), a.volumeInspectCommand(), a.volumeRmCommand(), a.volumePruneCommand())
	return cmd
}

func (a *App) volumeCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create VOLUME",
		Short:   "Create a volume",
		Long:    "Create a volume, a directory that outlives sandboxes. The first sandbox that mounts one\ncreates it, too.",
		Example: "  caisson volume create cache\n  caisson run --mount type=volume,src=cache,dst=/cache -- touch /cache/made",
		Args:    Exactly("VOLUME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), a, (*api.Client).CreateVolume, &caissonv1.CreateVolumeRequest{Name: args[0]}, func(v *caissonv1.Volume) error {
				if a.output == formatJSON {
					return a.PrintJSON(volumeViewOf(v))
				}
				return a.PrintLine("%s", printable(v.Name))
			})
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func (a *App) volumeLsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List volumes",
		Example: "  caisson volume ls",
		Args:    Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd.Context(), a, (*api.Client).ListVolumes, &caissonv1.ListVolumesRequest{}, func(r *caissonv1.ListVolumesResponse) error {
				return printList(a, r.Volumes, volumeViewOf, []string{"NAME", "OWNER", "CREATED", "USED BY"}, a.volumeRow)
			})
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func (a *App) volumeRow(v *caissonv1.Volume) []string {
	created := a.ageCell(v.CreatedAt)
	if a.wide {
		created = timeCell(v.CreatedAt)
	}
	return []string{v.Name, decimal(int64(v.Owner)), created, strings.Join(v.UsedBy, ", ")}
}

func (a *App) volumeInspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect VOLUME",
		Short:             "Show details of a volume as JSON",
		Example:           "  caisson volume inspect deps",
		Args:              Exactly("VOLUME"),
		ValidArgsFunction: a.completeVolumes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), a, (*api.Client).InspectVolume, &caissonv1.InspectVolumeRequest{Name: args[0]}, func(v *caissonv1.Volume) error {
				return a.PrintJSON(volumeViewOf(v))
			})
		},
	}
	a.jsonOnly(cmd)
	return cmd
}

func (a *App) volumeRmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm VOLUME...",
		Aliases:           []string{"remove"},
		Short:             "Remove volumes that no sandbox uses",
		Example:           "  caisson volume rm deps",
		Args:              atLeastOne("VOLUME"),
		ValidArgsFunction: a.completeVolumes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(cmd.Context(), func(client *api.Client) error {
				return a.removeEach(args, func(name string) (string, error) {
					_, err := client.RemoveVolume(cmd.Context(), &caissonv1.RemoveVolumeRequest{Name: name})
					return name, err
				})
			})
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func (a *App) volumePruneCommand() *cobra.Command {
	req := &caissonv1.PruneVolumesRequest{}
	cmd := &cobra.Command{
		Use:     "prune",
		Short:   "Remove all unused volumes",
		Long:    "Remove all of your volumes that no sandbox uses, with the files in them.",
		Example: "  caisson volume prune",
		Args:    Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd.Context(), a, (*api.Client).PruneVolumes, req, a.printPrunedVolumes)
		},
	}
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "show what would be removed, and remove nothing")
	a.outputFlags(cmd)
	return cmd
}

func (a *App) printPrunedVolumes(r *caissonv1.PruneVolumesResponse) error {
	if a.output == formatJSON {
		return a.PrintJSON(struct {
			Volumes []volumeView `json:"volumes"`
		}{orEmpty(each(r.Volumes, volumeViewOf))})
	}
	for _, v := range r.Volumes {
		if err := a.PrintLine("%s", printable(v.Name)); err != nil {
			return err
		}
	}
	a.progress(fmt.Sprintf("%d volumes", len(r.Volumes)))
	return nil
}

type volumeView struct {
	Name      string     `json:"name"`
	Owner     uint32     `json:"owner"`
	CreatedAt *time.Time `json:"created_at"`
	UsedBy    []string   `json:"used_by"`
}

func volumeViewOf(v *caissonv1.Volume) volumeView {
	return volumeView{v.GetName(), v.GetOwner(), timeOf(v.GetCreatedAt()), orEmpty(v.GetUsedBy())}
}

// completeVolumes offers the names of volumes.
func (a *App) completeVolumes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
		r, err := c.ListVolumes(ctx, &caissonv1.ListVolumesRequest{})
		return each(r.GetVolumes(), (*caissonv1.Volume).GetName), err
	})
}
