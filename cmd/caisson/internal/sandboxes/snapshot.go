package sandboxes

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func SnapshotCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Keep disks of sandboxes to begin others with",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(snapshotCreateCommand(a), snapshotLsCommand(a), snapshotInspectCommand(a), snapshotDiffCommand(a), snapshotRmCommand(a), snapshotExportCommand(a), snapshotImportCommand(a))
	return cmd
}

func snapshotCreateCommand(a *cli.App) *cobra.Command {
	req := &caissonv1.CreateSnapshotRequest{}
	cmd := &cobra.Command{
		Use:   "create SANDBOX",
		Short: "Keep the disk of a sandbox as it is now",
		Long: "Keep the disk of a running or paused sandbox as it is now, and print the name of the\nsnapshot. The sandbox has a disk with --rootfs rw or --disk. Its processes stand still\n" +
			"meanwhile. /tmp and mounts of the host are not part of it. With --path it is one directory,\nwhich other sandboxes mount.",
		Example: "  caisson create --name agent --rootfs rw\n  caisson snapshot create agent --name installed\n  caisson create --from installed\n" +
			"  caisson snapshot create agent --name deps --path /opt/deps\n  caisson create --mount type=snapshot,src=deps,dst=/opt/deps",
		Args:              cli.Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Ref = args[0]
			p := cli.Parser{Flags: cmd.Flags()}
			p.NotEmpty("name")
			p.NotEmpty("path")
			if err := p.End(req); err != nil {
				return err
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).CreateSnapshot, req, func(s *caissonv1.Snapshot) error { return printSnapshot(a, s) })
		},
	}
	cmd.Flags().StringVar(&req.Name, "name", "", "`NAME` of the snapshot (default: one that is made up)")
	cmd.Flags().StringVar(&req.Path, "path", "", "keep this `DIR` of the sandbox alone, to be mounted")
	a.OutputFlags(cmd)
	return cmd
}

func snapshotLsCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List snapshots",
		Example: "  caisson snapshot ls",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).ListSnapshots, &caissonv1.ListSnapshotsRequest{}, func(r *caissonv1.ListSnapshotsResponse) error {
				return cli.PrintList(a, r.Snapshots, []string{"NAME", "OWNER", "CREATED", "SANDBOX", "IMAGE", "ROOTFS", "PATH", "USED"}, func(s *caissonv1.Snapshot) []string { return snapshotRow(a, s) })
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func snapshotRow(a *cli.App, s *caissonv1.Snapshot) []string {
	created := a.AgeCell(s.CreatedAt)
	if a.Wide {
		created = cli.TimeCell(s.CreatedAt)
	}
	return []string{s.Name, cli.Decimal(int64(s.Owner)), created, s.SandboxName, s.Image, s.Rootfs, s.Path, cli.SizeCell(s.UsedBytes)}
}

func snapshotInspectCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect SNAPSHOT",
		Short:             "Show details of a snapshot as JSON",
		Example:           "  caisson snapshot inspect installed",
		Args:              cli.Exactly("SNAPSHOT"),
		ValidArgsFunction: completeSnapshots(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).InspectSnapshot, &caissonv1.InspectSnapshotRequest{Name: args[0]}, func(s *caissonv1.Snapshot) error {
				return a.PrintJSON(s)
			})
		},
	}
	a.JsonOnly(cmd)
	return cmd
}

func snapshotDiffCommand(a *cli.App) *cobra.Command {
	var stat, names bool
	req := new(caissonv1.DiffSnapshotRequest)
	cmd := &cobra.Command{
		Use:   "diff SNAPSHOT SNAPSHOT [PATH...]",
		Short: "Show what a snapshot has other than an earlier one",
		Long: "Show what the second snapshot has other than the first, at or below each PATH: A added, M modified,\nD deleted with all in it. What was renamed is deleted and added. Both are of one directory, or of\n" +
			"whole sandboxes with one image. Content is compared, times are not.",
		Example: "  caisson snapshot create agent --name before\n  caisson exec agent -- make install\n  caisson snapshot create agent --name after\n  caisson snapshot diff before after\n  caisson snapshot diff --stat before after usr/local",
		Args: func(cmd *cobra.Command, args []string) error {
			return cli.Exactly("SNAPSHOT", "SNAPSHOT")(cmd, args[:min(len(args), 2)])
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeSnapshots(a)(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if stat && names {
				return cli.Usage("--stat and --name-only exclude each other")
			}
			req.Name, req.To, req.Paths = args[0], args[1], args[2:]
			return cli.Ask(cmd.Context(), a, (*api.Client).DiffSnapshot, req, func(got *caissonv1.DiffResponse) error { return printDiff(a, got, stat, names) })
		},
	}
	diffFlags(cmd, &stat, &names)
	a.OutputFlags(cmd)
	return cmd
}

func snapshotRmCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm SNAPSHOT...",
		Aliases:           []string{"remove"},
		Short:             "Remove snapshots",
		Long:              "Remove snapshots. Sandboxes that began with one keep what they have.",
		Example:           "  caisson snapshot rm installed",
		Args:              cli.AtLeastOne("SNAPSHOT"),
		ValidArgsFunction: completeSnapshots(a),
		RunE: a.RemoveNamed(func(ctx context.Context, client *api.Client, name string) error {
			_, err := client.RemoveSnapshot(ctx, &caissonv1.RemoveSnapshotRequest{Name: name})
			return err
		}),
	}
	a.OutputFlags(cmd)
	return cmd
}

func ForkCommand(a *cli.App) *cobra.Command {
	var count uint32
	req := &caissonv1.ForkRequest{Count: &count}
	cmd := &cobra.Command{
		Use:   "fork SANDBOX",
		Short: "Create sandboxes that begin with the files of another",
		Long: "Create sandboxes with the files and the settings of a running or paused one, and print\ntheir IDs. The sandbox has a disk with --rootfs rw or --disk. Names, ports, links and\n" +
			"mounts of the host do not come along.",
		Example:           "  caisson fork -n 3 agent",
		Args:              cli.Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Ref = args[0]
			return cli.Ask(cmd.Context(), a, (*api.Client).Fork, req, func(r *caissonv1.ForkResponse) error { return printForks(a, args[0], r.Forks) })
		},
	}
	cmd.Flags().Uint32VarP(&count, "count", "n", 1, "create `N` sandboxes, at most 64")
	a.OutputFlags(cmd)
	return cmd
}

func printForks(a *cli.App, ref string, forks []*caissonv1.Forked) error {
	var made []*caissonv1.Sandbox
	var errs []error
	for i, f := range forks {
		if f.Sandbox == nil {
			errs = append(errs, fmt.Errorf("fork %d of %s: %w", i+1, ref, api.Told(f.Error)))
			continue
		}
		a.Warn(f.Sandbox.Warnings)
		made = append(made, f.Sandbox)
	}
	var told error
	switch {
	case a.Output == cli.FormatJSON && len(errs) == 0:
		told = a.PrintJSON(cli.Messages(a, made))
	case a.Output != cli.FormatJSON:
		for _, s := range made {
			if told == nil {
				told = a.PrintLine("%s", s.Id)
			}
		}
	}
	return cli.FailedEach(errs, told, cli.Part{Changed: cli.Messages(a, made)}, len(made))
}

// completeSnapshots offers the names of snapshots.
func completeSnapshots(a *cli.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.Complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
			r, err := c.ListSnapshots(ctx, &caissonv1.ListSnapshotsRequest{})
			return cli.Each(r.GetSnapshots(), (*caissonv1.Snapshot).GetName), err
		})
	}
}
