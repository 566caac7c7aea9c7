package cli

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

const learnLong = `Print the smallest policy that allows everything that was reached, one rule per line, in
the form of --allow.

With a command after --, run it as caisson run does, in network mode open. It can reach
every public name, with --private those of the private network too, and destinations that
--allow adds. Standard output and the exit code are the command's. The rules follow on
standard error, go to the file of --write, or are the field "learned" with --json.

With a SANDBOX, print the rules for everything that it reached so far. Create it with
--network open and let it do its work first. Open connections are recorded when they end,
so their destinations are missing until then.

A warning on standard error names what the rules may not cover.`

// learnFlags are those of run, and where the rules go.
type learnFlags struct {
	runFlags
	write   string
	private bool
}

func (a *App) policyLearnCommand() *cobra.Command {
	var f learnFlags
	cmd := &cobra.Command{
		Use:               "learn [flags] -- CMD [ARG...] | learn SANDBOX",
		Short:             "Print the smallest policy for what a command or sandbox reached",
		Long:              learnLong,
		Example:           "  caisson policy learn --workspace . -- make deps\n  caisson policy learn --write rules -- make deps\n  caisson policy learn agent",
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() < 0 && !f.shell {
				return a.learnSandbox(cmd, args)
			}
			if cmd.ArgsLenAtDash() > 0 {
				return Usage("give a SANDBOX, or a command after --, not both")
			}
			return a.learnCommand(cmd, args, &f)
		},
	}
	f.register(cmd)
	cmd.Flags().SetInterspersed(true)     // a command comes after --
	_ = cmd.Flags().MarkHidden("network") // it is open
	cmd.Flags().BoolVar(&f.private, "private", false, "reach names of the private network too (RFC 1918, RFC 4193)")
	cmd.Flags().StringVar(&f.write, "write", "", "write the rules to `FILE` instead of standard error")
	a.streamFlags(cmd)
	return cmd
}

// learnSandbox prints the rules for what a sandbox reached so far.
func (a *App) learnSandbox(cmd *cobra.Command, args []string) error {
	var other []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "output" && f.Name != "json" && f.Name != "socket" {
			other = append(other, "--"+f.Name)
		}
	})
	switch {
	case len(args) != 1:
		return Usage("give one SANDBOX, or a command after --")
	case len(other) > 0:
		return Usage("%s: for a command, which comes after --", strings.Join(other, ", "))
	}
	return ask(cmd.Context(), a, (*api.Client).LearnPolicy, args[0], a.printRules)
}

func (a *App) printRules(r *caissonv1.LearnPolicyResponse) error {
	for _, w := range r.Warnings {
		a.progress("caisson: warning: " + w)
	}
	if a.output == formatJSON {
		return a.PrintJSON(orEmpty(r.Rules))
	}
	return a.printLines(r.Rules)
}

// learnCommand runs a command and tells the rules for what it reached.
func (a *App) learnCommand(cmd *cobra.Command, args []string, f *learnFlags) error {
	if cmd.Flags().Changed("write") && f.write == "" {
		return Usage("--write is empty: name a file")
	}
	spec, err := f.spec(cmd.Flags(), args, a)
	if err != nil {
		return err
	}
	spec.Learn, spec.LearnPrivate, a.quiet = true, f.private, true // the warnings name refused destinations
	var learned *caissonv1.Learned
	err = a.foreground(cmd.Context(), task{
		terminal: f.terminal, stdin: f.interactive, limit: spec.Exec.OutputLimitBytes, consequence: "the sandbox is removed", hints: runHints,
		run: func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
			spec.Exec.Tty = size
			result, err := c.Run(ctx, spec, rio)
			learned = result.GetLearned()
			return result, err
		},
	})
	if learned == nil {
		return err
	}
	if told := a.tellLearned(learned, f.write); told != nil {
		return told
	}
	return err
}

// tellLearned writes the rules to a file where one is named, and else, unless they
// were told as JSON, to standard error: standard output is the command's. What
// cannot be written to the file is not lost.
func (a *App) tellLearned(l *caissonv1.Learned, file string) error {
	var err error
	if file != "" {
		err = sbxerr.Wrap(sbxerr.ClientIO, "caisson.learn", os.WriteFile(file, []byte(asLines(l.Rules)), 0o644))
	}
	if a.output == formatJSON || a.stream != "" {
		return err
	}
	for _, w := range l.Warnings {
		a.progress("caisson: warning: " + w)
	}
	switch {
	case file != "" && err == nil:
	case len(l.Rules) == 0 && len(l.Warnings) > 0:
		a.progress("caisson: it reached nothing")
	case len(l.Rules) == 0:
		a.progress("caisson: it reached nothing: it needs no network")
	default:
		a.progress("caisson: it would have sufficed to allow:")
		for _, r := range l.Rules {
			a.progress(r)
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

// learnedView is the smallest policy that would have sufficed.
type learnedView struct {
	Rules    []string `json:"rules"`
	Warnings []string `json:"warnings"`
}

func learnedViewOf(l *caissonv1.Learned) *learnedView {
	if l == nil {
		return nil
	}
	return &learnedView{orEmpty(l.Rules), orEmpty(l.Warnings)}
}
