package sandboxes

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

// AttachWorkspaceCommand is the verb attach-workspace.
func AttachWorkspaceCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach-workspace SANDBOX DIR[:ro|:cow]",
		Short: "Attach a directory of the host to a sandbox that lives",
		Long: "Mount DIR on /workspace of a running or paused sandbox that has no workspace of the host, without a\n" +
			"restart. Its own /workspace must be empty. A sandbox with a disk can have it copy-on-write, DIR:cow.\n" +
			"Processes whose working directory is /workspace keep the old one. A restart makes a sandbox without it.",
		Example:           "  caisson attach-workspace agent .\n  caisson attach-workspace agent .:cow",
		Args:              cli.Exactly("SANDBOX", "DIR"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := specflags.Workspace("DIR", args[1])
			if err != nil {
				return err
			}
			r := &caissonv1.AttachWorkspaceRequest{Ref: args[0], Workspace: w}
			return cli.Ask(cmd.Context(), a, (*api.Client).AttachWorkspace, r, func(s *caissonv1.Sandbox) error { return printSandbox(a, s) })
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

// AttachSnapshotCommand is the verb attach-snapshot.
func AttachSnapshotCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach-snapshot SANDBOX SNAPSHOT[:PATH]",
		Short: "Attach a snapshot of a directory to a sandbox that lives",
		Long: "Mount the directory that a snapshot keeps on PATH of a running or paused sandbox, without a restart.\n" +
			"PATH is an existing directory, by default the one that the snapshot is of. It is empty, unless it is\n" +
			"in a workspace or volume. The snapshot stays as it is: what is written goes to the disk of the\n" +
			"sandbox, which has one with --rootfs rw or --disk. A restart makes a sandbox without it.",
		Example: "  caisson snapshot create first --path /opt/deps --name deps\n  caisson attach-snapshot agent deps:/workspace/deps",
		Args:    cli.Exactly("SANDBOX", "SNAPSHOT"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return a.CompleteSandboxes(cmd, args, begun)
			}
			return completeSnapshots(a)(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name, path, given := strings.Cut(args[1], ":")
			if name == "" || given && path == "" {
				return cli.Usage("%q is not SNAPSHOT or SNAPSHOT:PATH", args[1])
			}
			r := &caissonv1.AttachSnapshotRequest{Ref: args[0], Snapshot: name, Path: path}
			return cli.Ask(cmd.Context(), a, (*api.Client).AttachSnapshot, r, func(s *caissonv1.Sandbox) error { return printSandbox(a, s) })
		},
	}
	a.OutputFlags(cmd)
	return cmd
}
