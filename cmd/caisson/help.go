package main

import (
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is how many columns help has: those of the smallest usual terminal.
const helpWidth = 80

// setUpCobra sets what cobra keeps for the process: its maps are not for many goroutines.
var setUpCobra = sync.OnceFunc(func() {
	cobra.EnableCommandSorting = false // ours is from the usual to the rare
	cobra.AddTemplateFunc("flags", func(f *pflag.FlagSet) string { return f.FlagUsagesWrapped(helpWidth) })
	cobra.AddTemplateFunc("fit", fit)
})

// fitHelp has the help of root and of all below it wrapped to helpWidth.
func fitHelp(root *cobra.Command) {
	setUpCobra()
	usage := strings.NewReplacer(".LocalFlags.FlagUsages", "flags .LocalFlags", ".InheritedFlags.FlagUsages", "flags .InheritedFlags")
	root.SetUsageTemplate(usage.Replace(root.UsageTemplate()))
	root.SetHelpTemplate(strings.Replace(root.HelpTemplate(), "trimTrailingWhitespaces", "fit", 1))
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
