package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/mcp"
)

const mcpLong = `Serve tools to an MCP client over standard input and output, or over HTTP with --listen:
bash, read_file, write_file, edit_file, list_files and search_files.

With --sandbox all tools work in that sandbox. Without it, the client creates sandboxes with
the given flags, and finds yours. The server has your rights, and no more.
When the client goes away, the commands that it started are killed; sandboxes stay.`

// mcpFlags are those of mcp beside a sandbox's.
type mcpFlags struct {
	loopbackFlags
	sandbox, printConfig string
	ensure               bool
}

func (a *app) mcpCommand() *cobra.Command {
	var f mcpFlags
	var box sandboxFlags
	cmd := &cobra.Command{
		Use:     "mcp [flags]",
		Short:   "Serve sandboxes to an MCP client",
		Long:    mcpLong,
		Example: "  caisson mcp --sandbox agent --ensure --workspace . --allow github.com\n  caisson mcp --sandbox agent --ensure --workspace . --print-config claude",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := parser{flags: cmd.Flags()}
			spec := box.spec(&p)
			spec.Env = p.environment(box.envFile, box.env, a.lookupEnv)
			f.check(cmd, &p)
			spec.Name = f.sandbox
			if err := p.end(spec); err != nil {
				return err
			}
			if f.printConfig != "" {
				return a.printMCPConfig(cmd, f, spec)
			}
			debug.SetGCPercent(100) // it lives long and moves little
			return a.with(cmd.Context(), func(client *api.Client) error { return a.serveMCP(cmd.Context(), client, f, spec) })
		},
	}
	cmd.Flags().StringVar(&f.sandbox, "sandbox", "", "work in the sandbox `NAME` only")
	cmd.Flags().BoolVar(&f.ensure, "ensure", false, "create the sandbox, with the following flags, unless it is there")
	cmd.Flags().StringVar(&f.listen, "listen", "", "serve HTTP at `ADDR:PORT` of the loopback interface, under /mcp")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "`FILE` with the bearer token that HTTP clients need (default: a new one, printed at the start)")
	cmd.Flags().StringVar(&f.printConfig, "print-config", "", "print the configuration for `CLIENT`: claude, codex, cursor, vscode or gemini")
	box.register(cmd)
	box.registerLife(cmd)
	cmd.Flags().Lookup("name").Hidden = true
	_ = cmd.RegisterFlagCompletionFunc("print-config", cobra.FixedCompletions(mcpClientNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("sandbox", a.completeSandboxes)
	return cmd
}

// ofSandbox are the flags that say how a sandbox is made.
func ofSandbox(cmd *cobra.Command) (set []string) {
	all := &cobra.Command{}
	var box sandboxFlags
	box.register(all)
	box.registerLife(all)
	for _, name := range flagNames(cmd) {
		if all.Flags().Lookup(name) != nil {
			set = append(set, name)
		}
	}
	return set
}

func (f *mcpFlags) check(cmd *cobra.Command, p *parser) {
	p.notEmpty("sandbox", "listen", "token-file", "print-config")
	set := ofSandbox(cmd)
	switch {
	case cmd.Flags().Changed("name"):
		p.refuse(usage("--name: name the one sandbox with --sandbox"))
	case f.ensure && f.sandbox == "":
		p.refuse(usage("--ensure needs --sandbox: it is what the sandbox is found by"))
	case f.sandbox != "" && !f.ensure && len(set) > 0:
		p.refuse(usage("--%s is for a sandbox that is made: add --ensure, or leave it out", set[0]))
	case f.tokenFile != "" && f.listen == "":
		p.refuse(usage("--token-file needs --listen"))
	case f.printConfig != "" && !slices.Contains(mcpClientNames(), f.printConfig):
		p.refuse(usage("--print-config %s: give one of %v", f.printConfig, mcpClientNames()))
	case f.printConfig != "" && f.listen != "":
		p.refuse(usage("--print-config is for a server that the client starts: leave --listen out"))
	}
}

func (a *app) serveMCP(ctx context.Context, client *api.Client, f mcpFlags, spec *caissonv1.SandboxSpec) error {
	box, err := mcpSandbox(ctx, client, f, spec)
	if err != nil {
		return err
	}
	s := mcp.New(mcp.Options{Client: client, Sandbox: f.sandbox, Spec: spec, Workspace: box.GetWorkspace().GetPath(), Network: box.GetNetwork(), Version: version})
	defer s.Close()
	ctx, stop := endOnSignal(ctx)
	defer stop()
	if f.listen != "" {
		return a.listenMCP(ctx, s, f.loopbackFlags)
	}
	err = s.Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(a.stdin), Writer: nopWriteCloser{a.stdout}})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil && sbxerr.Of(err) == sbxerr.Unknown {
		return sbxerr.WithRemedy(sbxerr.APIUsage, "caisson.mcp", fmt.Errorf("the client sent no message of the protocol: %w", err),
			"send one JSON-RPC 2.0 message on each line of standard input")
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

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
