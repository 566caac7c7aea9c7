package cli

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
	"github.com/caisson-run/caisson/plug/claude"
)

const (
	// ClaudeShellFlag is the first argument when Claude Code calls us as its shell. It has to
	// begin with a hyphen: the value of the prefix is cut there.
	ClaudeShellFlag = "--claude-shell"

	// EnvClaudeSandbox names the sandbox for such a call.
	EnvClaudeSandbox = "CAISSON_PLUG_SANDBOX"
)

// claudeShellVerb is hidden.
const claudeShellVerb = "claude-shell"

// shellFirst turns a call of Claude Code into one of our verbs.
func shellFirst(args []string) []string {
	if len(args) == 2 && args[0] == ClaudeShellFlag {
		return []string{claudeShellVerb, "--", args[1]}
	}
	return args
}

// claudeShellCommand is the shell of Claude Code.
func (a *App) claudeShellCommand() *cobra.Command {
	return &cobra.Command{
		Use:    claudeShellVerb + " -- SCRIPT",
		Short:  "Run a script of Claude Code in the sandbox that " + EnvClaudeSandbox + " names",
		Hidden: true,
		Args:   Exactly("SCRIPT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, _ := a.LookupEnv(EnvClaudeSandbox)
			if name == "" {
				return Usage("%s is not set: start Claude Code with caisson plug claude", EnvClaudeSandbox)
			}
			return a.With(cmd.Context(), func(client *api.Client) error {
				return a.claudeShell(cmd.Context(), client, name, claude.Parse(args[0]))
			})
		},
	}
}

// claudeShell runs a script as Claude Code's shell would. The end of this process ends it.
func (a *App) claudeShell(ctx context.Context, client *api.Client, name string, script claude.Script) error {
	ctx, stop := EndOnSignal(ctx)
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
		return ExitStatus(128 + 15)
	}
	if err != nil {
		return err
	}
	if script.CwdFile != "" && result.GetExitCode() == 0 {
		if err := keepCwd(ctx, client, name, script); err != nil {
			return err
		}
	}
	return ExitStatus(result.GetExitCode())
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
