package cli

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// runKept runs spec as the first command of a sandbox that stays, as create and exec do. The
// environment is that of all its commands.
func (a *App) runKept(ctx context.Context, f *runFlags, spec *caissonv1.RunSpec) error {
	if len(spec.Exec.Args) == 0 && spec.Exec.Shell == "" {
		return Usage("--keep needs a command after --")
	}
	spec.Sandbox.Env, spec.Exec.Env = spec.Exec.Env, nil
	a.inheritTERM(spec.Exec, spec.Sandbox.Env)
	t, err := f.foreground(spec.Exec, "the command is killed", execHints(spec.Exec.Limits))
	if err != nil {
		return err
	}
	kept := "" // its name
	t.end = endCommand
	t.before = func(ctx context.Context, c *api.Client) error { return a.pullMissing(ctx, c, f.pull, f.image) }
	t.run = func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
		s, err := pulled(ctx, a, c, f.pull, f.image, func() (*caissonv1.Sandbox, error) {
			return c.Create(ctx, &caissonv1.CreateRequest{Spec: spec.Sandbox})
		})
		if err != nil {
			return nil, err
		}
		kept = s.Name
		spec.Exec.Tty = size
		result, err := t.exec(ctx, c, s.Id, spec.Exec, rio)
		return result, a.withImage(ctx, c, err, f.image, spec.Exec.Args)
	}
	err = a.foreground(ctx, t)
	if kept != "" && !a.quiet && a.output != formatJSON { // which has its ID
		a.progress(fmt.Sprintf("caisson: the sandbox stays: caisson exec %s -- CMD, caisson rm --force %s", kept, kept))
	}
	return err
}
