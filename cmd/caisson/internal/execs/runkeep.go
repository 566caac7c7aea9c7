package execs

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/images"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

// runKept runs spec as the first command of a sandbox that stays, as create and exec do. The
// environment is that of all its commands.
func runKept(a *cli.App, ctx context.Context, f *specflags.RunFlags, spec *caissonv1.RunSpec) error {
	if len(spec.Exec.Args) == 0 && spec.Exec.Shell == "" {
		return cli.Usage("--keep needs a command after --")
	}
	spec.Sandbox.Env, spec.Exec.Env = spec.Exec.Env, nil
	a.InheritTERM(spec.Exec, spec.Sandbox.Env)
	t, err := foreground(&f.CommandFlags, spec.Exec, "the command is killed", execHints(spec.Exec.Limits))
	if err != nil {
		return err
	}
	kept := "" // its name
	t.end = endCommand
	t.before = func(ctx context.Context, c *api.Client) error { return images.PullMissing(a, ctx, c, f.Pull, f.Image) }
	t.Run = func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
		s, err := images.Pulled(ctx, a, c, f.Pull, f.Image, func() (*caissonv1.Sandbox, error) {
			return c.Create(ctx, &caissonv1.CreateRequest{Spec: spec.Sandbox})
		})
		if err != nil {
			return nil, err
		}
		kept = s.Name
		spec.Exec.Tty = size
		result, err := t.exec(ctx, c, s.Id, spec.Exec, rio)
		return result, withImage(a, ctx, c, err, f.Image, spec.Exec.Args)
	}
	err = Foreground(a, ctx, t)
	if kept != "" && !a.Quiet && a.Output != cli.FormatJSON { // which has its ID
		a.Progress(fmt.Sprintf("caisson: the sandbox stays: caisson exec %s -- CMD, caisson rm --force %s", kept, kept))
	}
	return err
}
