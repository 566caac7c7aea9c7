package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/plug/claude"
)

const plugClaudeLong = `Start Claude Code so that its shell commands run in a sandbox. The working directory is
mounted at the same path inside. The sandbox is made if it is not there, and stays.

Claude Code's own tools (Read, Edit, Write, Grep, WebFetch) stay on the host. Hooks and MCP
servers of its configuration run in the sandbox.`

const (
	// shellFlag is the first argument when Claude Code calls us as its shell. It has to
	// begin with a hyphen: the value of the prefix is cut there.
	shellFlag = "--claude-shell"

	envShellPrefix = "CLAUDE_CODE_SHELL_PREFIX"
	envPlugSandbox = "CAISSON_PLUG_SANDBOX"
)

// shellFirst turns a call of Claude Code into one of our verbs.
func shellFirst(args []string) []string {
	if len(args) == 2 && args[0] == shellFlag {
		return []string{"plug", "claude-shell", "--", args[1]}
	}
	return args
}

func (a *app) plugClaudeCommand() *cobra.Command {
	var box sandboxFlags
	var show bool
	cmd := &cobra.Command{
		Use:     "claude [flags] [-- ARG...]",
		Short:   "Start Claude Code with its shell commands in a sandbox",
		Long:    plugClaudeLong,
		Example: "  caisson plug claude --image tools --allow github.com\n  caisson plug claude -- -p 'run the tests'",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := parser{flags: cmd.Flags()}
			spec := plugged(&p, &box, "claude")
			spec.Env = p.environment(box.envFile, box.env, a.lookupEnv)
			if err := p.end(spec); err != nil {
				return err
			}
			env, err := a.claudeEnv(spec.Name)
			if err != nil {
				return err
			}
			if show {
				return a.printClaudeSettings(cmd, spec, env)
			}
			return a.startClaude(cmd.Context(), spec, env, args)
		},
	}
	cmd.Flags().BoolVar(&show, "print", false, "print the settings for Claude Code's settings.json; start nothing")
	box.register(cmd)
	box.registerLife(cmd)
	return cmd
}

// claudeEnv is what Claude Code needs to call us as its shell.
func (a *app) claudeEnv(name string) (map[string]string, error) {
	self, err := a.executable()
	if err != nil {
		return nil, err
	}
	if strings.Contains(self, " -") {
		return nil, usage("%q: Claude Code cuts the path of a program before \" -\"; install caisson elsewhere", self)
	}
	return map[string]string{envShellPrefix: self + " " + shellFlag, envPlugSandbox: name, "CAISSON_SOCKET": a.socket}, nil
}

// printClaudeSettings prints env for settings.json, and says how to make the sandbox that it
// names: Claude Code, started by itself, makes none.
func (a *app) printClaudeSettings(cmd *cobra.Command, spec *caissonv1.SandboxSpec, env map[string]string) error {
	self, err := a.executable()
	if err != nil {
		return err
	}
	w := spec.Workspace
	args := slices.Concat([]string{"create"}, a.socketFlag(), []string{"--ensure", "--name", spec.Name, "--workspace", w.Dir + ":" + w.Path + ":" + cmp.Or(w.Mode, "rw")},
		givenFlags(cmd, spec, "print", "socket", "name", "workspace"))
	fmt.Fprintf(a.stderr, "caisson: make the sandbox before Claude Code starts: %s %s\n", self, quoteArgs(args))
	return a.printJSON(map[string]any{"env": env})
}

// startClaude becomes Claude Code.
func (a *app) startClaude(ctx context.Context, spec *caissonv1.SandboxSpec, env map[string]string, args []string) error {
	path, err := exec.LookPath("claude")
	if err != nil {
		return sbxerr.WithRemedy(sbxerr.Binary, "caisson.plug", errors.New("claude is not in PATH"), "install Claude Code, or add its directory to PATH")
	}
	err = a.with(ctx, func(client *api.Client) error {
		_, err := client.Create(ctx, &caissonv1.CreateRequest{Spec: spec, Ensure: true})
		return err
	})
	if err != nil {
		return err
	}
	environ := os.Environ()
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	err = a.exec(path, append([]string{"claude"}, args...), environ)
	return sbxerr.Wrap(sbxerr.Binary, "caisson.plug", err)
}

// plugClaudeShellCommand is the shell of Claude Code.
func (a *app) plugClaudeShellCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "claude-shell -- SCRIPT",
		Short:  "Run a script of Claude Code in the sandbox that " + envPlugSandbox + " names",
		Hidden: true,
		Args:   exactly("SCRIPT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, _ := a.lookupEnv(envPlugSandbox)
			if name == "" {
				return usage("%s is not set: start Claude Code with caisson plug claude", envPlugSandbox)
			}
			return a.with(cmd.Context(), func(client *api.Client) error {
				return a.claudeShell(cmd.Context(), client, name, claude.Parse(args[0]))
			})
		},
	}
}

// claudeShell runs a script as Claude Code's shell would. The end of this process ends it.
func (a *app) claudeShell(ctx context.Context, client *api.Client, name string, script claude.Script) error {
	ctx, stop := endOnSignal(ctx)
	defer stop()
	dir, err := os.Getwd()
	if err != nil {
		return sbxerr.Wrap(sbxerr.ClientIO, "caisson.plug", err)
	}
	spec := &caissonv1.ExecSpec{
		Args:    []string{"/bin/sh", "-c", `if command -v bash >/dev/null; then exec bash -c "$0"; else exec sh -c "$0"; fi`, script.Text},
		Workdir: dir, Env: claude.Environment(os.Environ()),
	}
	rio := api.IO{Stdout: a.stdout, Stderr: a.stderr}
	if script.CwdFile == "" {
		spec.Stdin, rio.Stdin = true, a.stdin
	}
	result, err := client.Exec(ctx, name, spec, rio)
	if ctx.Err() != nil {
		return exitStatus(128 + 15)
	}
	if err != nil {
		return err
	}
	if script.CwdFile != "" && result.GetExitCode() == 0 {
		if err := keepCwd(ctx, client, name, script); err != nil {
			return err
		}
	}
	return exitStatus(result.GetExitCode())
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
