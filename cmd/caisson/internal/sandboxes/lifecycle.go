package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func PauseCommand(a *cli.App) *cobra.Command {
	return lifecycleCommand(a, "pause", "Pause all processes of sandboxes", (*api.Client).Pause)
}

func ResumeCommand(a *cli.App) *cobra.Command {
	return lifecycleCommand(a, "resume", "Resume paused sandboxes", (*api.Client).Resume)
}

func RestartCommand(a *cli.App) *cobra.Command {
	cmd := lifecycleCommand(a, "restart", "Restart sandboxes", (*api.Client).Restart)
	cmd.Long = "Replace sandboxes, live or ended, by new ones under the same names, made by the requests of the\nold ones. Their files and commands are removed, and changes by caisson update are undone."
	return cmd
}

func StopCommand(a *cli.App) *cobra.Command {
	var grace *time.Duration
	text := ""
	cmd := lifecycleCommand(a, "stop", "Stop sandboxes", func(c *api.Client, ctx context.Context, ref string) (*caissonv1.Sandbox, error) {
		s, err := c.Stop(ctx, ref, grace)
		if err == nil && s.GetWorkspace().GetMode() == "cow" {
			tellIfKept(ctx, a, c, s.Id)
		}
		return s, err
	})
	cmd.Long = "End all processes of sandboxes: TERM, and KILL after a grace. What their commands\nwrote stays until caisson rm."
	cmd.Flags().StringVar(&text, "grace", "", "`DURATION` between SIGTERM and SIGKILL, such as 5s; 0s kills at once (default: the daemon's)")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := cli.Parser{Flags: cmd.Flags()}
		grace = graceOf(&p, "grace", text)
		if err := errors.Join(p.Errs...); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// graceOf is a duration that may be zero.
func graceOf(p *cli.Parser, name, text string) *time.Duration {
	if !p.Flags.Changed(name) {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		p.Refuse(cli.NoDuration(cli.DurationExamples+", or 0", "--%s: %q is not a duration", name, text))
		return nil
	}
	return &d
}

// lifecycleCommand is a verb that changes the state of sandboxes.
func lifecycleCommand(a *cli.App, verb, short string, call func(*api.Client, context.Context, string) (*caissonv1.Sandbox, error)) *cobra.Command {
	var f cli.FilterFlags
	cmd := &cobra.Command{
		Use:               verb + " [flags] SANDBOX...",
		Short:             short,
		Example:           "  caisson " + verb + " agent\n  caisson " + verb + " --session nightly",
		Args:              cobra.ArbitraryArgs, // selected refuses none
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithSelected(cmd, &f, args, func(ctx context.Context, client *api.Client, refs []string) error {
				return changeEach(a, refs, func(ref string) (*caissonv1.Sandbox, error) { return call(client, ctx, ref) })
			})
		},
	}
	f.RegisterSelecting(cmd)
	a.OutputFlags(cmd)
	return cmd
}

// changeEach goes on past failures, tells what was changed, and returns what
// was not.
func changeEach(a *cli.App, refs []string, change func(ref string) (*caissonv1.Sandbox, error)) error {
	var changed []*caissonv1.Sandbox
	var errs []error
	for _, ref := range refs {
		s, err := change(ref)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ref, err))
			continue
		}
		changed = append(changed, s)
	}
	var told error
	switch {
	case a.Output == cli.FormatTable:
		for _, s := range changed {
			told = errors.Join(told, printSandbox(a, s))
		}
	case len(errs) == 0:
		told = a.PrintJSON(cli.Messages(a, changed))
	}
	return cli.FailedEach(errs, told, cli.Part{Changed: cli.Messages(a, changed)}, len(changed))
}
