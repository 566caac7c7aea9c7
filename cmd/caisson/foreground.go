package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// task is a command in the foreground: of run, exec or attach.
type task struct {
	terminal, stdin  bool
	limit            *int64 // of each stream that is kept for one object
	stdout0, stderr0 int64  // offsets at which the output begins
	consequence      string // of a second Ctrl-C
	ends             bool   // a caller that leaves has to end the command itself
	// run runs it. A nil size is no terminal.
	run func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error)
}

// foreground connects t with our own streams, signals and terminal.
func (a *app) foreground(ctx context.Context, t task) error {
	if t.terminal && a.output == formatJSON {
		return usage("-t and --json exclude each other: a terminal's output is for a person")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	relay := newRelay(a.grace, t.consequence, cancel)
	go relay.run(ctx)

	client, err := a.client(ctx)
	if err != nil {
		return relay.explain(ctx, err)
	}
	defer client.Close()
	out := a.taskOutput(t)
	rio := api.IO{Stdout: out.stdout, Stderr: out.stderr, Signals: relay.forward, Started: func(e *caissonv1.Exec) {
		relay.started()
		out.start(e)
	}}
	if t.stdin {
		rio.Stdin = a.stdin
	}
	if t.terminal || t.ends { // a write to a closed pipe must not end us before we have cleaned up
		signal.Ignore(syscall.SIGPIPE)
	}
	var size *caissonv1.WinSize
	if t.terminal {
		screen, err := a.openTerminal(t.stdin)
		if err != nil {
			return err
		}
		defer screen.close()
		size, rio.Resizes = screen.size().Message(), screen.resizes
	}
	result, err := t.run(ctx, client, size, rio)
	if err != nil {
		return relay.explain(ctx, err)
	}
	if err := out.end(result); err != nil {
		return err
	}
	return exitStatus(result.ExitCode)
}
