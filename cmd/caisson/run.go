package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const runLong = `Run one command in a sandbox of its own and exit with the command's exit code:
128+n when signal n ended it, 124 on timeout, 125 when caisson failed or refused,
126 when the command cannot be executed, 127 when it was not found.

Ctrl-C and SIGTERM reach the command; a second one, or 10 seconds, end the sandbox.`

func (a *app) runCommand() *cobra.Command {
	var f specFlags
	cmd := &cobra.Command{
		Use:     "run [flags] -- CMD [ARG...]",
		Short:   "Run a command in a sandbox",
		Long:    runLong,
		Example: "  caisson run -- echo hello\n  caisson run --workspace . --timeout 5m -m 1G -- make test",
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(cmd.Flags(), args, a.lookupEnv)
			if err != nil {
				return err
			}
			if spec.Detach {
				return a.start(cmd.Context(), spec)
			}
			return a.foreground(cmd.Context(), spec)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVarP(&f.detach, "detach", "d", false, "leave the command running and print the sandbox's ID")
	a.outputFlags(cmd)
	return cmd
}

// start runs spec in the background of the daemon.
func (a *app) start(ctx context.Context, spec *caissonv1.RunSpec) error {
	client, err := a.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	started, err := client.Start(ctx, spec)
	if err != nil {
		return err
	}
	if a.output == formatJSON {
		return a.printJSON(struct {
			ID   string `json:"sandbox_id"`
			Name string `json:"name"`
		}{started.Id, started.Name})
	}
	return a.printLine("%s", started.Id)
}

// foreground runs spec connected with our own streams and signals.
func (a *app) foreground(ctx context.Context, spec *caissonv1.RunSpec) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	relay := newRelay(a.grace, cancel)
	defer relay.stop()
	go relay.run(ctx)

	client, err := a.client(ctx)
	if err != nil {
		return relay.explain(ctx, err)
	}
	defer client.Close()
	out := a.runOutput(spec.OutputLimitBytes)
	rio := api.RunIO{Stdout: out.stdout, Stderr: out.stderr, Signals: relay.forward, Started: relay.started}
	if spec.Stdin {
		rio.Stdin = a.stdin
	}
	result, err := client.Run(ctx, spec, rio)
	if err != nil {
		return relay.explain(ctx, err)
	}
	if err := out.end(result); err != nil {
		return err
	}
	return exitStatus(result.ExitCode)
}

// runOutput is where the output of a command goes, and what is told at its end.
type runOutput struct {
	stdout, stderr io.Writer
	end            func(*caissonv1.Result) error
}

// runOutput chooses between passing output on as it comes and keeping it, up
// to limit, for one object at the end.
func (a *app) runOutput(limit *int64) runOutput {
	if a.output == formatJSON {
		kept := newKeptOutput(limit)
		return runOutput{&kept.stdout, &kept.stderr, func(r *caissonv1.Result) error {
			return a.printJSON(kept.view(r))
		}}
	}
	return runOutput{a.stdout, a.stderr, func(r *caissonv1.Result) error {
		if note := noteOf(r); note != "" {
			a.progress("caisson: " + note)
		}
		return nil
	}}
}

// noteOf says why a command ended, where its exit code alone does not.
func noteOf(r *caissonv1.Result) string {
	switch {
	case r.TimedOut:
		return "the command was ended by its timeout"
	case r.OomKilled:
		return "the sandbox ran out of memory: -m gives it more"
	case r.Reason == "lost":
		return "the sandbox ended without a word about the command"
	case r.PidsLimitHit:
		return "the sandbox reached its limit of processes: --pids gives it more"
	}
	return ""
}
