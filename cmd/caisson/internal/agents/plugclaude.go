package agents

import (
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
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

const plugClaudeLong = `Start Claude Code so that its shell commands run in a sandbox. The working directory is
mounted at the same path inside. The sandbox is made if it is not there, and stays.

Claude Code's own tools (Read, Edit, Write, Grep, WebFetch) stay on the host. Hooks and MCP
servers of its configuration run in the sandbox.`

// envShellPrefix has Claude Code call us as its shell.
const envShellPrefix = "CLAUDE_CODE_SHELL_PREFIX"

func plugClaudeCommand(a *cli.App) *cobra.Command {
	var box specflags.SandboxFlags
	var show bool
	cmd := &cobra.Command{
		Use:     "claude [flags] [-- ARG...]",
		Short:   "Start Claude Code with its shell commands in a sandbox",
		Long:    plugClaudeLong,
		Example: "  caisson plug claude --image tools --allow github.com\n  caisson plug claude -- -p 'run the tests'",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := cli.NewParser(cmd.Flags())
			spec := plugged(p, &box, "claude")
			spec.Env = box.Environment(p, a)
			if err := p.End(spec); err != nil {
				return err
			}
			env, err := claudeEnv(a, spec.Name)
			if err != nil {
				return err
			}
			if show {
				return printClaudeSettings(a, cmd, spec, env)
			}
			return startClaude(a, cmd.Context(), spec, env, args)
		},
	}
	cmd.Flags().BoolVar(&show, "print", false, "print the settings for Claude Code's settings.json; start nothing")
	box.Register(cmd)
	box.RegisterLife(cmd)
	return cmd
}

// claudeEnv is what Claude Code needs to call us as its shell.
func claudeEnv(a *cli.App, name string) (map[string]string, error) {
	if err := a.RequireLocal("plug claude"); err != nil {
		return nil, err
	}
	self, err := a.Executable()
	if err != nil {
		return nil, err
	}
	if strings.Contains(self, " -") {
		return nil, cli.Usage("%q: Claude Code cuts the path of a program before \" -\"; install caisson elsewhere", self)
	}
	return map[string]string{envShellPrefix: self + " " + cli.ClaudeShellFlag, cli.EnvClaudeSandbox: name, "CAISSON_SOCKET": a.Socket}, nil
}

// printClaudeSettings prints env for settings.json, and says how to make the sandbox that it
// names: Claude Code, started by itself, makes none.
func printClaudeSettings(a *cli.App, cmd *cobra.Command, spec *caissonv1.SandboxSpec, env map[string]string) error {
	self, err := a.Executable()
	if err != nil {
		return err
	}
	w := spec.Workspace
	args := slices.Concat([]string{"create"}, a.SocketFlag(), []string{"--ensure", "--name", spec.Name, "--workspace", w.Dir + ":" + w.Path + ":" + cmp.Or(w.Mode, "rw")},
		givenFlags(cmd, spec, "print", "socket", "name", "workspace"))
	fmt.Fprintf(a.Stderr, "caisson: make the sandbox before Claude Code starts: %s %s\n", self, cli.QuoteArgs(args))
	return a.PrintJSON(map[string]any{"env": env})
}

// startClaude becomes Claude Code.
func startClaude(a *cli.App, ctx context.Context, spec *caissonv1.SandboxSpec, env map[string]string, args []string) error {
	path, err := exec.LookPath("claude")
	if err != nil {
		return sbxerr.WithRemedy(sbxerr.Binary, "caisson.plug", errors.New("claude is not in PATH"), "install Claude Code, or add its directory to PATH")
	}
	err = a.With(ctx, func(client *api.Client) error {
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
	err = a.Exec(path, append([]string{"claude"}, args...), environ)
	return sbxerr.Wrap(sbxerr.Binary, "caisson.plug", err)
}
