package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The help of each command fits a terminal of 80 columns and shows how to call it. The root's names each verb once.
func TestHelpFits(t *testing.T) {
	a := newApp(whole, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	root := a.root(nil)
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > helpWidth {
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

func TestFit(t *testing.T) {
	long := strings.Repeat("word ", 40)
	got := fit("One.\nTwo.\n\n" + long + "\n\nA list:\n  - stays " + long)
	lines := strings.Split(got, "\n")
	if lines[0] != "One. Two." || len(lines[2]) > helpWidth || len(lines[2]) < helpWidth-6 || !strings.Contains(got, "A list:\n  - stays "+strings.TrimSpace(long)) {
		t.Errorf("%q", got)
	}
}
