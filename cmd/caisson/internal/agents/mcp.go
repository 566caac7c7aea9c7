package agents

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
	"github.com/caisson-run/caisson/mcp"
)

const mcpLong = `Serve tools to an MCP client over standard input and output, or over HTTP with --listen:
bash, read_file, write_file, edit_file, list_files, search_files and workspace_diff.

With --sandbox all tools work in that sandbox. Without it, the client creates sandboxes with
the given flags, and finds yours. The server has your rights, and no more.
When the client goes away, the commands that it started are killed; sandboxes stay.`

// mcpFlags are those of mcp beside a sandbox's.
type mcpFlags struct {
	cli.LoopbackFlags
	sandbox, printConfig string
	ensure               bool
}

func mcpCommand(a *cli.App) *cobra.Command {
	var f mcpFlags
	var box specflags.SandboxFlags
	cmd := &cobra.Command{
		Use:     "mcp [flags]",
		Short:   "Serve sandboxes to an MCP client",
		Long:    mcpLong,
		Example: "  caisson mcp --sandbox agent --ensure --workspace . --allow github.com\n  caisson mcp --sandbox agent --ensure --workspace . --print-config claude",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := cli.NewParser(cmd.Flags())
			spec := box.Spec(p)
			spec.Env = box.Environment(p, a)
			f.check(cmd, p)
			spec.Name = f.sandbox
			if err := p.End(spec); err != nil {
				return err
			}
			if f.printConfig != "" {
				return printMCPConfig(a, cmd, f, spec)
			}
			debug.SetGCPercent(100) // it lives long and moves little
			return a.With(cmd.Context(), func(client *api.Client) error { return serveMCP(a, cmd.Context(), client, f, spec) })
		},
	}
	cmd.Flags().StringVar(&f.sandbox, "sandbox", "", "work in the sandbox `NAME` only")
	cmd.Flags().BoolVar(&f.ensure, "ensure", false, "create the sandbox, with the following flags, unless it is there")
	cmd.Flags().StringVar(&f.Listen, "listen", "", "serve HTTP at `ADDR:PORT` of the loopback interface, under /mcp")
	cmd.Flags().StringVar(&f.TokenFile, "token-file", "", "`FILE` with the bearer token that HTTP clients need (default: a new one, printed at the start)")
	cmd.Flags().StringVar(&f.printConfig, "print-config", "", "print the configuration for `CLIENT`: claude, codex, cursor, vscode or gemini")
	box.Register(cmd)
	box.RegisterLife(cmd)
	cmd.Flags().Lookup("name").Hidden = true
	_ = cmd.RegisterFlagCompletionFunc("print-config", cobra.FixedCompletions(mcpClientNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("sandbox", a.CompleteSandboxes)
	return cmd
}

// ofSandbox are the flags that say how a sandbox is made.
func ofSandbox(cmd *cobra.Command) (set []string) {
	all := &cobra.Command{}
	var box specflags.SandboxFlags
	box.Register(all)
	box.RegisterLife(all)
	for _, name := range flagNames(cmd) {
		if all.Flags().Lookup(name) != nil {
			set = append(set, name)
		}
	}
	return set
}

func (f *mcpFlags) check(cmd *cobra.Command, p *cli.Parser) {
	p.NotEmpty("sandbox", "listen", "token-file", "print-config")
	set := ofSandbox(cmd)
	switch {
	case cmd.Flags().Changed("name"):
		p.Refuse(cli.Usage("--name: name the one sandbox with --sandbox"))
	case f.ensure && f.sandbox == "":
		p.Refuse(cli.Usage("--ensure needs --sandbox: it is what the sandbox is found by"))
	case f.sandbox != "" && !f.ensure && len(set) > 0:
		p.Refuse(cli.Usage("--%s is for a sandbox that is made: add --ensure, or leave it out", set[0]))
	case f.TokenFile != "" && f.Listen == "":
		p.Refuse(cli.Usage("--token-file needs --listen"))
	case f.printConfig != "" && !slices.Contains(mcpClientNames(), f.printConfig):
		p.Refuse(cli.Usage("--print-config %s: give one of %v", f.printConfig, mcpClientNames()))
	case f.printConfig != "" && f.Listen != "":
		p.Refuse(cli.Usage("--print-config is for a server that the client starts: leave --listen out"))
	}
}

func serveMCP(a *cli.App, ctx context.Context, client *api.Client, f mcpFlags, spec *caissonv1.SandboxSpec) error {
	box, err := mcpSandbox(ctx, client, f, spec)
	if err != nil {
		return err
	}
	s := mcp.New(mcp.Options{Client: client, Sandbox: f.sandbox, Spec: spec, Workspace: box.GetWorkspace().GetPath(), Network: box.GetNetwork(), Version: a.Program.Version})
	defer s.Close()
	ctx, stop := cli.EndOnSignal(ctx)
	defer stop()
	if f.Listen != "" {
		return listenMCP(a, ctx, s, f.LoopbackFlags)
	}
	err = s.Run(ctx, &mcp.Stdio{In: a.Stdin, Out: a.Stdout})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// mcpSandbox is the one sandbox that a server works in; nil where there may be many.
func mcpSandbox(ctx context.Context, client *api.Client, f mcpFlags, spec *caissonv1.SandboxSpec) (*caissonv1.Sandbox, error) {
	if f.ensure {
		return client.Create(ctx, &caissonv1.CreateRequest{Spec: spec, Ensure: true})
	}
	if f.sandbox == "" {
		return nil, nil
	}
	answer, err := client.Inspect(ctx, &caissonv1.InspectRequest{Ref: f.sandbox})
	return answer.GetSandbox(), err
}
