package sandboxes

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// DiffCommand is the verb diff.
func DiffCommand(a *cli.App) *cobra.Command {
	var stat, names bool
	r := new(caissonv1.DiffRequest)
	cmd := &cobra.Command{
		Use:   "diff SANDBOX",
		Short: "Show what changed in a copy-on-write workspace",
		Long: "Show what a running or paused sandbox with --workspace DIR:cow changed in the workspace:\nA added, M modified, D deleted with all in it, R renamed directory. What is inside of files is\n" +
			"not looked at: one that was opened to be written is modified. Control files, which decide what\nprograms of the host do, come last. With --patch, what is inside of files is compared, and control\n" +
			"files are left out. Read a patch before git apply takes it.",
		Example:           "  caisson create --name agent --workspace .:cow\n  caisson diff agent\n  caisson diff --patch agent > agent.patch",
		Args:              cli.Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if stat && names || r.Patch && (stat || names) {
				return cli.Usage("--stat, --name-only and --patch exclude each other")
			}
			if r.IncludeControl && !r.Patch {
				return cli.Usage("--include-control is of a patch: give --patch, too")
			}
			r.Ref = args[0]
			return cli.Ask(cmd.Context(), a, (*api.Client).Diff, r, func(got *caissonv1.DiffResponse) error {
				if r.Patch && a.Output != cli.FormatJSON {
					return printPatch(a, got)
				}
				return printDiff(a, got, stat, names)
			})
		},
	}
	diffFlags(cmd, &stat, &names)
	cmd.Flags().BoolVar(&r.Patch, "patch", false, "show a patch that git apply takes")
	cmd.Flags().BoolVar(&r.IncludeControl, "include-control", false, "with --patch, show control files as well, such as .envrc")
	a.OutputFlags(cmd)
	return cmd
}

func diffFlags(cmd *cobra.Command, stat, names *bool) {
	cmd.Flags().BoolVar(stat, "stat", false, "show sizes, and a sum at the end")
	cmd.Flags().BoolVar(names, "name-only", false, "show names only")
}

func printPatch(a *cli.App, r *caissonv1.DiffResponse) error {
	err := a.PrintPatch(r.Patch)
	tellNotes(a, "not in the patch", r.Left)
	tellTruncated(a, r)
	return err
}

func tellTruncated(a *cli.App, r *caissonv1.DiffResponse) {
	if r.Truncated {
		a.Progress("caisson: there are more changes than the daemon lists")
	}
}

func printDiff(a *cli.App, r *caissonv1.DiffResponse, stat, names bool) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(r)
	}
	line := changeLine
	switch {
	case stat:
		line = statLine
	case names:
		line = func(c *caissonv1.Change) string { return cli.Printable(c.Path) }
	}
	if err := printChanges(a, r.Changes, line); err != nil {
		return err
	}
	tellTruncated(a, r)
	if stat {
		return a.PrintLine("%s", sumLine(r.Changes))
	}
	return nil
}

// printChanges prints changes of control files apart from the others, after them.
func printChanges(a *cli.App, list []*caissonv1.Change, line func(*caissonv1.Change) string) error {
	var control []string
	for _, c := range list {
		if c.Control {
			control = append(control, line(c)+" (control file)")
		} else if err := a.PrintLine("%s", line(c)); err != nil {
			return err
		}
	}
	return a.PrintLines(control)
}

var letters = map[string]string{"added": "A", "modified": "M", "deleted": "D", "renamed": "R"} // as in git

// changeLine is a change on one line, such as "M run.sh (mode 644 to 755)".
func changeLine(c *caissonv1.Change) string {
	text := letters[c.Kind] + " " + namesText(c)
	before, after := c.GetOld(), c.GetNew()
	if c.Kind == "modified" && before.GetType() != after.GetType() {
		text += fmt.Sprintf(" (%s, was %s)", after.GetType(), before.GetType())
	} else if before != nil && after != nil && before.Mode != after.Mode {
		text += fmt.Sprintf(" (mode %o to %o)", before.Mode, after.Mode)
	}
	if after.GetType() == "symlink" {
		text += " -> " + cli.Printable(after.Link)
	}
	return text
}

// namesText names what changed, a directory with a slash at its end.
func namesText(c *caissonv1.Change) string {
	name := cli.Printable(c.Path)
	if c.OldPath != "" {
		name = cli.Printable(c.OldPath) + " to " + name
	}
	if c.GetNew().GetType() == "directory" || c.New == nil && c.GetOld().GetType() == "directory" {
		name += "/"
	}
	return name
}

// statLine is changeLine with the size of a file before and after.
func statLine(c *caissonv1.Change) string {
	if c.GetOld().GetType() != "file" && c.GetNew().GetType() != "file" {
		return changeLine(c)
	}
	return fmt.Sprintf("%s | %d to %d bytes", changeLine(c), c.GetOld().GetSizeBytes(), c.GetNew().GetSizeBytes())
}

func sumLine(list []*caissonv1.Change) string {
	count := map[string]int{}
	for _, c := range list {
		count[c.Kind]++
	}
	return fmt.Sprintf("%d added, %d modified, %d deleted, %d renamed", count["added"], count["modified"], count["deleted"], count["renamed"])
}
