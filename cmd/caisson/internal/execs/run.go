// Package execs has the verbs of commands in sandboxes, and the foreground in which they run.
package execs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/images"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

const runLong = `Run a command in a new sandbox and remove the sandbox. Exit with the command's exit code:
128+n if signal n ended it, 124 on timeout, 125 if caisson failed or refused, 126 if the
command cannot be executed, 127 if it was not found. Without CMD, the entrypoint
and the command of --image run.

Ctrl-C and SIGTERM go to the command. A second one, or 10 seconds, ends the sandbox. So does
a closed terminal. With --keep and -it, the keys of --detach-keys leave the command running.
Use create and exec -d for what is to go on.`

func RunCommand(a *cli.App) *cobra.Command {
	var f specflags.RunFlags
	var remove, keep bool
	cmd := &cobra.Command{
		Use:     "run [flags] [-- CMD [ARG...]]",
		Short:   "Run a command in a new sandbox",
		Long:    runLong,
		Example: "  caisson run -- echo hello\n  caisson run --workspace . --timeout 5m -m 1G -- make test\n  printf 'cd /tmp\\npwd\\n' | caisson run --shell --ulimit nofile=64",
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.Spec(cmd.Flags(), args, a)
			if err != nil {
				return err
			}
			if spec.Detach && remove {
				return cli.Usage("-d and --rm exclude each other: such a sandbox stays for its result; --ttl removes it")
			}
			specflags.NoteLinkedGit(a, spec.Sandbox)
			if keep && (remove || spec.Detach) {
				return cli.Usage("--keep excludes --rm and -d: the sandbox stays for further commands; create and exec -d start one in the background")
			}
			if cmd.Flags().Changed("detach-keys") && !keep {
				return cli.Usage("--detach-keys needs --keep: without it the sandbox ends with its caller; run -dit starts one in the background, for attach -it")
			}
			if keep {
				return runKept(a, cmd.Context(), &f, spec)
			}
			a.InheritTERM(spec.Exec, spec.Exec.Env)
			if spec.Detach {
				return runDetached(a, cmd.Context(), f.Pull, spec)
			}
			return runAttached(a, cmd.Context(), &f, spec)
		},
	}
	f.Register(cmd)
	f.Pull.Register(cmd)
	cmd.Flags().BoolVarP(&f.Detach, "detach", "d", false, "run in the background and print the ID of the sandbox; with -i its input stays open for attach -i")
	cmd.Flags().BoolVar(&remove, "rm", false, "remove the sandbox when the command ends, which is always done without -d")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the sandbox for further commands; see exec and rm")
	leaveKeysFlag(cmd, &f.DetachKeys)
	StreamFlags(a, cmd)
	cmd.Flags().BoolVar(&a.Trace, "trace", false, "show in the JSON what each stage of the sandbox's creation took")
	return cmd
}

// runAttached runs spec for a caller who follows it.
func runAttached(a *cli.App, ctx context.Context, f *specflags.RunFlags, spec *caissonv1.RunSpec) error {
	t, err := foreground(&f.CommandFlags, spec.Exec, "the sandbox is removed", RunHints)
	if err != nil {
		return err
	}
	t.detachKeys = nil // the daemon ends such a command with its caller
	t.before = func(ctx context.Context, c *api.Client) error { return images.PullMissing(a, ctx, c, f.Pull, f.Image) }
	t.Run = func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
		spec.Exec.Tty = size
		result, err := images.Pulled(ctx, a, c, f.Pull, f.Image, func() (*caissonv1.Result, error) { return c.Run(ctx, spec, rio) })
		return result, withImage(a, ctx, c, err, f.Image, spec.Exec.Args)
	}
	return Foreground(a, ctx, t)
}

// runDetached runs spec in the background of the daemon.
func runDetached(a *cli.App, ctx context.Context, when specflags.PullFlag, spec *caissonv1.RunSpec) error {
	return a.With(ctx, func(client *api.Client) error {
		started, err := images.Pulled(ctx, a, client, when, spec.Sandbox.GetImage(), func() (*caissonv1.Started, error) { return client.RunDetached(ctx, spec) })
		if err != nil {
			return withImage(a, ctx, client, err, spec.Sandbox.GetImage(), spec.Exec.GetArgs())
		}
		a.Warn(started.Warnings)
		if a.Output == cli.FormatJSON {
			return a.PrintJSON(started)
		}
		return a.PrintLine("%s", started.SandboxId)
	})
}
