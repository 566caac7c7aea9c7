package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
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

// mcpArgs are the arguments of this process, without what only prints them.
func mcpArgs(cmd *cobra.Command, workspace *caissonv1.Workspace) []string {
	args := []string{"mcp"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "print-config" {
			return
		}
		if f.Name == "workspace" { // the client starts the server wherever it is
			args = append(args, "--workspace", workspace.GetDir()+":"+cmp.Or(workspace.GetPath(), "/workspace")+":"+cmp.Or(workspace.GetMode(), "rw"))
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			for _, v := range list.GetSlice() {
				args = append(args, "--"+f.Name, v)
			}
			return
		}
		if f.Value.Type() == "bool" {
			args = append(args, "--"+f.Name+"="+f.Value.String())
			return
		}
		args = append(args, "--"+f.Name, f.Value.String())
	})
	return args
}

// printMCPConfig prints what belongs into the file of a client, and where that is.
func (a *app) printMCPConfig(cmd *cobra.Command, f mcpFlags, workspace *caissonv1.Workspace) error {
	self, err := a.executable()
	if err != nil {
		return err
	}
	args := mcpArgs(cmd, workspace)
	c := mcpClients[slices.IndexFunc(mcpClients, func(c mcpClient) bool { return c.name == f.printConfig })]
	fmt.Fprintf(a.stderr, "caisson: put this into %s\n", c.file)
	if c.command != "" {
		fmt.Fprintf(a.stderr, "caisson: or type: %s %s %s\n", c.command, self, quoteArgs(args))
	}
	if c.key != "" {
		return a.printJSON(map[string]any{c.key: map[string]any{"caisson": map[string]any{"command": self, "args": args}}})
	}
	command, err := json.Marshal(self) // a basic string of TOML is one of JSON
	if err != nil {
		return err
	}
	list, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return a.printLine("[mcp_servers.caisson]\ncommand = %s\nargs = %s", command, list)
}

// quoteArgs are arguments as a shell takes them.
func quoteArgs(args []string) string {
	quoted := slices.Clone(args)
	for i, arg := range quoted {
		if strings.ContainsAny(arg, " \t\n'\"\\$`*?[]{}()<>|&;#~!") || arg == "" {
			quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
