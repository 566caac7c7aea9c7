package policies

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/execs"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

const learnLong = `Print the smallest policy that allows everything that was reached, one rule per line, in
the form of --allow.

With a command after --, run it as caisson run does, in network mode open. It can reach
every public name, with --private those of the private network too, and destinations that
--allow adds. Standard output and the exit code are the command's. The rules follow on
standard error, go to the file of --write, or are in the result as "learned" with --json.

With a SANDBOX, print the rules for everything that it reached so far. Create it with
--network open and let it do its work first. Open connections are recorded when they end,
so their destinations are missing until then.

A warning on standard error names what the rules may not cover.`

// learnFlags are those of run, and where the rules go.
type learnFlags struct {
	specflags.RunFlags
	write   string
	private bool
}

func policyLearnCommand(a *cli.App) *cobra.Command {
	var f learnFlags
	cmd := &cobra.Command{
		Use:               "learn [flags] -- CMD [ARG...] | learn SANDBOX",
		Short:             "Print the smallest policy for what a command or sandbox reached",
		Long:              learnLong,
		Example:           "  caisson policy learn --workspace . -- make deps\n  caisson policy learn --write rules -- make deps\n  caisson policy learn agent",
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() < 0 && !f.Shell {
				return learnSandbox(a, cmd, args)
			}
			if cmd.ArgsLenAtDash() > 0 {
				return cli.Usage("give a SANDBOX, or a command after --, not both")
			}
			return learnCommand(a, cmd, args, &f)
		},
	}
	f.Register(cmd)
	cmd.Flags().SetInterspersed(true)     // a command comes after --
	_ = cmd.Flags().MarkHidden("network") // it is open
	cmd.Flags().BoolVar(&f.private, "private", false, "reach names of the private network too (RFC 1918, RFC 4193)")
	cmd.Flags().StringVar(&f.write, "write", "", "write the rules to `FILE` instead of standard error")
	execs.StreamFlags(a, cmd)
	return cmd
}

// learnSandbox prints the rules for what a sandbox reached so far.
func learnSandbox(a *cli.App, cmd *cobra.Command, args []string) error {
	var other []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "output" && f.Name != "json" && f.Name != "socket" {
			other = append(other, "--"+f.Name)
		}
	})
	switch {
	case len(args) != 1:
		return cli.Usage("give one SANDBOX, or a command after --")
	case len(other) > 0:
		return cli.Usage("%s: for a command, which comes after --", strings.Join(other, ", "))
	}
	return cli.Ask(cmd.Context(), a, (*api.Client).LearnPolicy, args[0], func(r *caissonv1.LearnPolicyResponse) error { return printRules(a, r) })
}

func printRules(a *cli.App, r *caissonv1.LearnPolicyResponse) error {
	for _, w := range r.Warnings {
		a.Progress("caisson: warning: " + w)
	}
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(r)
	}
	return a.PrintLines(r.Rules)
}

// learnCommand runs a command and tells the rules for what it reached.
func learnCommand(a *cli.App, cmd *cobra.Command, args []string, f *learnFlags) error {
	if cmd.Flags().Changed("write") && f.write == "" {
		return cli.Usage("--write is empty: name a file")
	}
	spec, err := f.Spec(cmd.Flags(), args, a)
	if err != nil {
		return err
	}
	spec.Learn, spec.LearnPrivate, a.Quiet = true, f.private, true // the warnings name refused destinations
	var learned *caissonv1.Learned
	err = execs.Foreground(a, cmd.Context(), execs.Task{
		Terminal: f.Terminal, Stdin: f.Interactive, Limit: spec.Exec.OutputLimitBytes, Consequence: "the sandbox is removed", Hints: execs.RunHints,
		Run: func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
			spec.Exec.Tty = size
			result, err := c.Run(ctx, spec, rio)
			learned = result.GetLearned()
			return result, err
		},
	})
	if learned == nil {
		return err
	}
	if told := tellLearned(a, learned, f.write); told != nil {
		return told
	}
	return err
}

// tellLearned writes the rules to a file where one is named, and else, unless they
// were told as JSON, to standard error: standard output is the command's. What
// cannot be written to the file is not lost.
func tellLearned(a *cli.App, l *caissonv1.Learned, file string) error {
	var err error
	if file != "" {
		err = sbxerr.Wrap(sbxerr.ClientIO, "caisson.learn", os.WriteFile(file, []byte(asLines(l.Rules)), 0o644))
	}
	if a.Output == cli.FormatJSON || a.Stream != "" {
		return err
	}
	for _, w := range l.Warnings {
		a.Progress("caisson: warning: " + w)
	}
	switch {
	case file != "" && err == nil:
	case len(l.Rules) == 0 && len(l.Warnings) > 0:
		a.Progress("caisson: it reached nothing")
	case len(l.Rules) == 0:
		a.Progress("caisson: it reached nothing: it needs no network")
	default:
		a.Progress("caisson: it would have sufficed to allow:")
		for _, r := range l.Rules {
			a.Progress(r)
		}
	}
	return err
}

func asLines(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, "\n") + "\n"
}
