package main

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// runKept runs spec as the first command of a sandbox that stays, as create and exec do. The
// environment is that of all its commands.
func (a *app) runKept(ctx context.Context, f *runFlags, spec *caissonv1.RunSpec) error {
	if len(spec.Exec.Args) == 0 && spec.Exec.Shell == "" {
		return usage("--keep needs a command after --")
	}
	spec.Sandbox.Env, spec.Exec.Env = spec.Exec.Env, nil
	a.inheritTERM(spec.Exec, spec.Sandbox.Env)
	kept := "" // its name
	err := a.foreground(ctx, task{
		terminal: f.terminal, stdin: f.interactive, limit: spec.Exec.OutputLimitBytes, consequence: "the command is killed", hints: execHints(spec.Exec.Limits), ends: true, timeout: spec.Exec.Timeout,
		before: func(ctx context.Context, c *api.Client) error { return a.pullMissing(ctx, c, f.pull, f.image) },
		run: func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
			s, err := pulled(ctx, a, c, f.pull, f.image, func() (*caissonv1.Sandbox, error) {
				return c.Create(ctx, &caissonv1.CreateRequest{Spec: spec.Sandbox})
			})
			if err != nil {
				return nil, withImage(err, spec.Exec.Args)
			}
			kept = s.Name
			spec.Exec.Tty = size
			return c.Exec(ctx, s.Id, spec.Exec, rio)
		},
	})
	if kept != "" && !a.quiet && a.output != formatJSON { // which has its ID
		a.progress(fmt.Sprintf("caisson: the sandbox stays: caisson exec %s -- CMD, caisson rm --force %s", kept, kept))
	}
	return err
}
