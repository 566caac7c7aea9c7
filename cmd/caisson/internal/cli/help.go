package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"

	"github.com/spf13/cobra"
)

// helpWidth is how many columns help has: those of the smallest usual terminal.
const helpWidth = 80

// setUpCobra sets what cobra keeps for the process.
var setUpCobra = sync.OnceFunc(func() { cobra.EnableCommandSorting = false }) // ours is from the usual to the rare

// fitHelp has the help of root and of all below it wrapped to helpWidth. Cobra's own way are
// templates, which keep every exported method of every type in the program.
func fitHelp(root *cobra.Command) {
	setUpCobra()
	root.SetUsageFunc(func(cmd *cobra.Command) error { return writeUsage(cmd.OutOrStderr(), cmd) })
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n", fit(cmp.Or(cmd.Long, cmd.Short)))
		_ = writeUsage(cmd.OutOrStdout(), cmd) // as Help has no error for it either
	})
}

// writeUsage tells how cmd is called.
func writeUsage(w io.Writer, cmd *cobra.Command) error {
	var out strings.Builder
	out.WriteString("Usage:")
	if cmd.Runnable() {
		fmt.Fprintf(&out, "\n  %s", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&out, "\n  %s [command]", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&out, "\n\nExamples:\n%s", cmd.Example)
	}
	writeCommands(&out, cmd)
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(&out, "\n\nFlags:\n%s", strings.TrimRightFunc(cmd.LocalFlags().FlagUsagesWrapped(helpWidth), unicode.IsSpace))
	}
	if cmd.HasAvailableInheritedFlags() {
		fmt.Fprintf(&out, "\n\nGlobal Flags:\n%s", strings.TrimRightFunc(cmd.InheritedFlags().FlagUsagesWrapped(helpWidth), unicode.IsSpace))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&out, "\n\nUse \"%s [command] --help\" for more information about a command.", cmd.CommandPath())
	}
	_, err := fmt.Fprintln(w, out.String())
	return err
}

// writeCommands lists those below cmd, in their groups.
func writeCommands(out *strings.Builder, cmd *cobra.Command) {
	groups := cmd.Groups()
	if len(groups) == 0 && cmd.HasAvailableSubCommands() {
		groups = []*cobra.Group{{Title: "Available Commands:"}}
	}
	for _, group := range groups {
		fmt.Fprintf(out, "\n\n%s", group.Title)
		for _, below := range cmd.Commands() {
			if below.GroupID == group.ID && below.IsAvailableCommand() {
				fmt.Fprintf(out, "\n  %-*s %s", below.NamePadding(), below.Name(), below.Short)
			}
		}
	}
}

// fit wraps each paragraph of text. Those with a line that is indented stay as they are.
func fit(text string) string {
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range paragraphs {
		if !strings.Contains(p, "\n ") && !strings.Contains(p, "\n\t") && !strings.HasPrefix(p, " ") {
			paragraphs[i] = wrapped(strings.Fields(p))
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

func wrapped(words []string) string {
	var out strings.Builder
	column := 0
	for _, w := range words {
		switch width := len([]rune(w)); {
		case column == 0:
			column = width
		case column+1+width > helpWidth:
			out.WriteByte('\n')
			column = width
		default:
			out.WriteByte(' ')
			column += 1 + width
		}
		out.WriteString(w)
	}
	return out.String()
}
