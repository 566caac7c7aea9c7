package pod

import (
	"fmt"
	"strings"
)

// Table is the decisions in Markdown, for docs/reference/kubernetes.md.
func Table() string {
	var b strings.Builder
	b.WriteString("| Field of `spec` | | In caisson, or why not |\n|---|---|---|\n")
	for _, f := range Fields {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Path, f.Verdict, f.Text)
	}
	return b.String()
}
