package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *App) pauseCommand() *cobra.Command {
	return a.lifecycleCommand("pause", "Pause all processes of sandboxes", (*api.Client).Pause)
}

func (a *App) resumeCommand() *cobra.Command {
	return a.lifecycleCommand("resume", "Resume paused sandboxes", (*api.Client).Resume)
}

func (a *App) restartCommand() *cobra.Command {
	cmd := a.lifecycleCommand("restart", "Restart sandboxes", (*api.Client).Restart)
	cmd.Long = "Replace sandboxes, live or ended, by new ones under the same names, made by the requests of the\nold ones. Their files and commands are removed, and changes by caisson update are undone."
	return cmd
}

func (a *App) stopCommand() *cobra.Command {
	var grace *time.Duration
	text := ""
	cmd := a.lifecycleCommand("stop", "Stop sandboxes", func(c *api.Client, ctx context.Context, ref string) (*caissonv1.Sandbox, error) {
		return c.Stop(ctx, ref, grace)
	})
	cmd.Long = "End all processes of sandboxes: TERM, and KILL after a grace. What their commands\nwrote stays until caisson rm."
	cmd.Flags().StringVar(&text, "grace", "", "`DURATION` between SIGTERM and SIGKILL, such as 5s; 0s kills at once (default: the daemon's)")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := Parser{flags: cmd.Flags()}
		grace = p.grace("grace", text)
		if err := errors.Join(p.errs...); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// grace is a duration that may be zero.
func (p *Parser) grace(name, text string) *time.Duration {
	if !p.flags.Changed(name) {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		p.Refuse(noDuration(durationExamples+", or 0", "--%s: %q is not a duration", name, text))
		return nil
	}
	return &d
}

// lifecycleCommand is a verb that changes the state of sandboxes.
func (a *App) lifecycleCommand(verb, short string, call func(*api.Client, context.Context, string) (*caissonv1.Sandbox, error)) *cobra.Command {
	var f filterFlags
	cmd := &cobra.Command{
		Use:               verb + " [flags] SANDBOX...",
		Short:             short,
		Example:           "  caisson " + verb + " agent\n  caisson " + verb + " --session nightly",
		Args:              cobra.ArbitraryArgs, // selected refuses none
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSelected(cmd, &f, args, func(ctx context.Context, client *api.Client, refs []string) error {
				return a.changeEach(refs, func(ref string) (*caissonv1.Sandbox, error) { return call(client, ctx, ref) })
			})
		},
	}
	f.registerSelecting(cmd)
	a.outputFlags(cmd)
	return cmd
}

// changeEach goes on past failures, tells what was changed, and returns what
// was not.
func (a *App) changeEach(refs []string, change func(ref string) (*caissonv1.Sandbox, error)) error {
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
	case a.output == formatTable:
		for _, s := range changed {
			told = errors.Join(told, a.printSandbox(s))
		}
	case len(errs) == 0:
		told = a.PrintJSON(each(changed, sandboxViewOf))
	}
	return failedEach(errs, told, partView{Changed: each(changed, sandboxViewOf)}, len(changed))
}

// failedEach is the outcome of a call that did something for each of several and
// failed for those of errs; done is how many it did it for, which part tells.
func failedEach(errs []error, told error, part partView, done int) error {
	err := errors.Join(append(errs, told)...)
	if len(errs) == 1 {
		err = errors.Unwrap(errs[0])
	}
	if len(errs) == 0 || done == 0 {
		return err
	}
	return &partError{err, part}
}
