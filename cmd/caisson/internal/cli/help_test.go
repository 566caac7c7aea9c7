package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// The help of each command fits a terminal of 80 columns and shows how to call it. The root's names each verb once.
func TestHelpFits(t *testing.T) {
	a := cli.NewApp(whole, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	root := a.Root(nil)
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > cli.HelpWidth {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		if !cmd.HasSubCommands() && !cmd.Hidden && !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s: its help has no example: %q", cmd.CommandPath(), cmd.Example)
		}
		for _, c := range cmd.Commands() {
			check(c)
		}
	}
	check(root)
	for _, c := range root.Commands() {
		if c.GroupID == "" {
			t.Errorf("%s is in no group of the help", c.Name())
		}
	}
}
