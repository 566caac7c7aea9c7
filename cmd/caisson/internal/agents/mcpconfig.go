package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

// mcpClient is a program that starts MCP servers by its configuration.
type mcpClient struct {
	name, file string
	key        string // of the table of servers in JSON; empty: the file is TOML
	command    string // that does the same
}

var mcpClients = []mcpClient{
	{name: "claude", file: ".mcp.json in the project", key: "mcpServers", command: "claude mcp add caisson --"},
	{name: "codex", file: "~/.codex/config.toml", command: "codex mcp add caisson --"},
	{name: "cursor", file: ".cursor/mcp.json in the project", key: "mcpServers"},
	{name: "vscode", file: ".vscode/mcp.json in the project", key: "servers"},
	{name: "gemini", file: "~/.gemini/settings.json", key: "mcpServers"},
}

func mcpClientNames() (names []string) {
	for _, c := range mcpClients {
		names = append(names, c.name)
	}
	return names
}

// flagNames are the flags that were given.
func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// givenFlags are the flags of this process for one that is started anywhere later.
func givenFlags(cmd *cobra.Command, spec *caissonv1.SandboxSpec, except ...string) (args []string) {
	workspace := spec.GetWorkspace()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch list, isList := f.Value.(pflag.SliceValue); {
		case slices.Contains(except, f.Name):
		case f.Name == "workspace":
			args = append(args, "--workspace", strings.Join(slices.DeleteFunc([]string{workspace.GetDir(), workspace.GetPath(), cmp.Or(workspace.GetMode(), "rw")},
				func(part string) bool { return part == "" }), ":"))
		case f.Name == "mount":
			for _, m := range spec.GetMounts() {
				args = append(args, "--mount", specflags.MountText(m))
			}
		case f.Name == "env-file":
			file, _ := filepath.Abs(f.Value.String()) // it was read
			args = append(args, "--env-file", file)
		case isList:
			for _, v := range list.GetSlice() {
				args = append(args, "--"+f.Name, v)
			}
		case f.Value.Type() == "bool":
			args = append(args, "--"+f.Name+"="+f.Value.String())
		default:
			args = append(args, "--"+f.Name, f.Value.String())
		}
	})
	return args
}

// printMCPConfig prints what belongs into the file of a client, and where that is.
func printMCPConfig(a *cli.App, cmd *cobra.Command, f mcpFlags, spec *caissonv1.SandboxSpec) error {
	self, err := a.Executable()
	if err != nil {
		return err
	}
	args := slices.Concat([]string{"mcp"}, a.SocketFlag(), givenFlags(cmd, spec, "print-config", "socket"))
	c := mcpClients[slices.IndexFunc(mcpClients, func(c mcpClient) bool { return c.name == f.printConfig })]
	fmt.Fprintf(a.Stderr, "caisson: put this into %s\n", c.file)
	if c.command != "" {
		fmt.Fprintf(a.Stderr, "caisson: or type: %s %s %s\n", c.command, self, cli.QuoteArgs(args))
	}
	if c.key != "" {
		return a.PrintJSON(map[string]any{c.key: map[string]any{"caisson": map[string]any{"command": self, "args": args}}})
	}
	command, err := json.Marshal(self) // a basic string of TOML is one of JSON
	if err != nil {
		return err
	}
	list, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return a.PrintLine("[mcp_servers.caisson]\ncommand = %s\nargs = %s", command, list)
}
