package execs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/plug/claude"
)

// ClaudeShellCommand is the shell of Claude Code.
func ClaudeShellCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:    cli.ClaudeShellVerb + " -- SCRIPT",
		Short:  "Run a script of Claude Code in the sandbox that " + cli.EnvClaudeSandbox + " names",
		Hidden: true,
		Args:   cli.Exactly("SCRIPT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, _ := a.LookupEnv(cli.EnvClaudeSandbox)
			if name == "" {
				return cli.Usage("%s is not set: start Claude Code with caisson plug claude", cli.EnvClaudeSandbox)
			}
			return a.With(cmd.Context(), func(client *api.Client) error {
				return claudeShell(a, cmd.Context(), client, name, claude.Parse(args[0]))
			})
		},
	}
}

// claudeShell runs a script as Claude Code's shell would. The end of this process ends it.
func claudeShell(a *cli.App, ctx context.Context, client *api.Client, name string, script claude.Script) error {
	ctx, stop := cli.EndOnSignal(ctx)
	defer stop()
	dir, err := os.Getwd()
	if err != nil {
		return sbxerr.Wrap(sbxerr.ClientIO, "caisson.plug", err)
	}
	spec := &caissonv1.ExecSpec{
		Args:    []string{"/bin/sh", "-c", `if command -v bash >/dev/null; then exec bash -c "$0"; else exec sh -c "$0"; fi`, script.Text},
		Workdir: dir, Env: claude.Environment(os.Environ()),
	}
	rio := api.IO{Stdout: a.Stdout, Stderr: a.Stderr}
	if script.CwdFile == "" {
		spec.Stdin, rio.Stdin = true, a.Stdin
	}
	result, err := client.Exec(ctx, name, spec, rio)
	if ctx.Err() != nil {
		return cli.ExitStatus(128 + 15)
	}
	if err != nil {
		return err
	}
	if script.CwdFile != "" && result.GetExitCode() == 0 {
		if err := keepCwd(ctx, client, name, script); err != nil {
			return err
		}
	}
	return cli.ExitStatus(result.GetExitCode())
}

// keepCwd takes the working directory of a command out of the sandbox.
func keepCwd(ctx context.Context, client *api.Client, name string, script claude.Script) error {
	var content bytes.Buffer
	_, err := client.ReadFile(ctx, &caissonv1.ReadFileRequest{Ref: name, Path: script.CwdFile, Length: 8 << 10}, &content)
	if errors.Is(err, sbxerr.FileAbsent) {
		return nil // the command ended before
	}
	_, removed := client.RemoveFile(ctx, &caissonv1.RemoveFileRequest{Ref: name, Path: script.CwdFile})
	return cmp.Or(err, removed, sbxerr.Wrap(sbxerr.ClientIO, "caisson.plug", script.KeepCwd(content.Bytes())))
}
