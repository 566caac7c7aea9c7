package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const runLong = `Run a command in a new sandbox and remove the sandbox. Exit with the command's exit code:
128+n if signal n ended it, 124 on timeout, 125 if caisson failed or refused, 126 if the
command cannot be executed, 127 if it was not found. Without CMD, the entrypoint
and the command of --image run.

Ctrl-C and SIGTERM go to the command. A second one, or 10 seconds, ends the sandbox. So does
a closed terminal. With --keep and -it, the keys of --detach-keys leave the command running.
Use create and exec -d for what is to go on.`

func (a *App) runCommand() *cobra.Command {
	var f runFlags
	var remove, keep bool
	cmd := &cobra.Command{
		Use:     "run [flags] [-- CMD [ARG...]]",
		Short:   "Run a command in a new sandbox",
		Long:    runLong,
		Example: "  caisson run -- echo hello\n  caisson run --workspace . --timeout 5m -m 1G -- make test\n  printf 'cd /tmp\\npwd\\n' | caisson run --shell --ulimit nofile=64",
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(cmd.Flags(), args, a)
			if err != nil {
				return err
			}
			if spec.Detach && remove {
				return Usage("-d and --rm exclude each other: such a sandbox stays for its result; --ttl removes it")
			}
			a.noteLinkedGit(spec.Sandbox)
			if keep && (remove || spec.Detach) {
				return Usage("--keep excludes --rm and -d: the sandbox stays for further commands; create and exec -d start one in the background")
			}
			if cmd.Flags().Changed("detach-keys") && !keep {
				return Usage("--detach-keys needs --keep: without it the sandbox ends with its caller; run -dit starts one in the background, for attach -it")
			}
			if keep {
				return a.runKept(cmd.Context(), &f, spec)
			}
			a.inheritTERM(spec.Exec, spec.Exec.Env)
			if spec.Detach {
				return a.runDetached(cmd.Context(), f.pull, spec)
			}
			return a.runAttached(cmd.Context(), &f, spec)
		},
	}
	f.register(cmd)
	f.pull.register(cmd)
	cmd.Flags().BoolVarP(&f.detach, "detach", "d", false, "run in the background and print the ID of the sandbox; with -i its input stays open for attach -i")
	cmd.Flags().BoolVar(&remove, "rm", false, "remove the sandbox when the command ends, which is always done without -d")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the sandbox for further commands; see exec and rm")
	leaveKeysFlag(cmd, &f.detachKeys)
	a.streamFlags(cmd)
	cmd.Flags().BoolVar(&a.trace, "trace", false, "show in the JSON what each stage of the sandbox's creation took")
	return cmd
}

// runAttached runs spec for a caller who follows it.
func (a *App) runAttached(ctx context.Context, f *runFlags, spec *caissonv1.RunSpec) error {
	t, err := f.foreground(spec.Exec, "the sandbox is removed", runHints)
	if err != nil {
		return err
	}
	t.detachKeys = nil // the daemon ends such a command with its caller
	t.before = func(ctx context.Context, c *api.Client) error { return a.pullMissing(ctx, c, f.pull, f.image) }
	t.run = func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
		spec.Exec.Tty = size
		result, err := pulled(ctx, a, c, f.pull, f.image, func() (*caissonv1.Result, error) { return c.Run(ctx, spec, rio) })
		return result, a.withImage(ctx, c, err, f.image, spec.Exec.Args)
	}
	return a.foreground(ctx, t)
}

// runDetached runs spec in the background of the daemon.
func (a *App) runDetached(ctx context.Context, when pullFlag, spec *caissonv1.RunSpec) error {
	return a.With(ctx, func(client *api.Client) error {
		started, err := pulled(ctx, a, client, when, spec.Sandbox.GetImage(), func() (*caissonv1.Started, error) { return client.RunDetached(ctx, spec) })
		if err != nil {
			return a.withImage(ctx, client, err, spec.Sandbox.GetImage(), spec.Exec.GetArgs())
		}
		a.warn(started.Warnings)
		if a.output == formatJSON {
			return a.PrintJSON(struct {
				ID       string   `json:"sandbox_id"`
				Name     string   `json:"name"`
				Warnings []string `json:"warnings,omitempty"`
			}{started.SandboxId, started.SandboxName, started.Warnings})
		}
		return a.PrintLine("%s", started.SandboxId)
	})
}
