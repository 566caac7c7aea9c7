package sandboxes

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// ApplyCommand is the verb apply.
func ApplyCommand(a *cli.App) *cobra.Command {
	var ours, theirs bool
	r := new(caissonv1.ApplyRequest)
	cmd := &cobra.Command{
		Use:   "apply SANDBOX [PATH...]",
		Short: "Write changes of a copy-on-write workspace into its directory",
		Long: "Write what a running or paused sandbox with --workspace DIR:cow changed into DIR, with the ids of its\n" +
			"owner: all, or what is at or below a PATH of the workspace. If the host changed the same, nothing is\n" +
			"applied. Control files, which decide what programs of the host do, are left out and named.",
		Example:           "  caisson apply --dry-run agent\n  caisson apply agent src README.md",
		Args:              cli.AtLeastOne("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if ours && theirs {
				return cli.Usage("--ours and --theirs exclude each other")
			}
			if r.Ref, r.Paths = args[0], args[1:]; ours {
				r.Conflicts = "ours"
			} else if theirs {
				r.Conflicts = "theirs"
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).Apply, r, func(done *caissonv1.ApplyResponse) error { return printApplied(a, done) })
		},
	}
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "only show what would be applied")
	cmd.Flags().BoolVar(&ours, "ours", false, "keep the host's of what the host changed as well")
	cmd.Flags().BoolVar(&theirs, "theirs", false, "take the sandbox's of what the host changed as well")
	cmd.Flags().BoolVar(&r.IncludeControl, "include-control", false, "apply control files as well, such as .git/hooks")
	a.OutputFlags(cmd)
	return cmd
}

func printApplied(a *cli.App, r *caissonv1.ApplyResponse) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(r)
	}
	if err := printChanges(a, r.Changes, changeLine); err != nil {
		return err
	}
	for _, c := range r.Control {
		a.Progress("caisson: control file, left out without --include-control: " + changeLine(c))
	}
	tellNotes(a, "the host changed it too", r.Conflicts)
	tellNotes(a, "not applied", r.Left)
	tellNotes(a, "applied", r.Notes)
	return nil
}

func tellNotes(a *cli.App, what string, notes []*caissonv1.ChangeNote) {
	for _, n := range notes {
		a.Progress(fmt.Sprintf("caisson: %s: %s: %s", what, cli.Printable(n.Path), n.Reason))
	}
}
