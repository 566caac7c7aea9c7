package specflags

import (
	"fmt"

	"github.com/spf13/cobra"
)

// The values of --pull.
const (
	PullMissing = "missing"
	PullAlways  = "always"
	pullNever   = "never"
)

// PullFlag is --pull of the commands that make a sandbox.
type PullFlag string

// String, Set and Type implement pflag.Value.
func (p *PullFlag) String() string { return string(*p) }

func (p *PullFlag) Set(s string) error {
	switch s {
	case PullMissing, PullAlways, pullNever:
		*p = PullFlag(s)
		return nil
	}
	return fmt.Errorf("use missing, always or never")
}

func (p *PullFlag) Type() string { return "when" }

func (p *PullFlag) Register(cmd *cobra.Command) {
	*p = PullMissing
	cmd.Flags().Var(p, "pull", "pull the image `WHEN`: missing, always or never (only if its name has a registry)")
	_ = cmd.RegisterFlagCompletionFunc("pull", cobra.FixedCompletions([]string{PullMissing, PullAlways, pullNever}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}
