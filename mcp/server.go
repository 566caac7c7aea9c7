// Package mcp serves a daemon's sandboxes to clients of the Model Context Protocol, as
// tools that run commands and work on files. It is a client of the API: its tools have
// the rights of the user who started it, and no more.
//
// https://modelcontextprotocol.io/specification/2025-11-25/server/tools
package mcp

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Options say what a Server offers.
type Options struct {
	Client *api.Client
	// Sandbox is the one that all tools work in. Empty: the client creates sandboxes, and
	// names one in each call.
	Sandbox string
	// Spec is that of the sandboxes that the client creates.
	Spec      *caissonv1.SandboxSpec
	Workspace string // where relative paths begin; empty is /workspace
	Network   string // the mode of that sandbox, or of those; empty: it is not known
	Version   string
	Log       *slog.Logger // nil: nothing is logged
}

// Server offers the tools to one client, or to many over HTTP.
type Server struct {
	client    *api.Client
	sandbox   string
	workspace string
	spec      *caissonv1.SandboxSpec
	mcp       *sdk.Server
	inputs    map[string]*jsonschema.Schema // of the tools, by name
	commands  commands
	shells    shells
}

const instructions = `Tools that run commands and work on files in an isolated Linux sandbox. A non-zero exit code is a result, not a failure of the tool.
`

// networks says what each mode means for a model.
var networks = map[string]string{
	"":       "The network may be limited: a refused destination is named in the result, with the rule that would allow it. Tell the user that rule instead of trying again.",
	"none":   "There is no network: no name resolves, and downloads fail. Where one is needed, tell the user to start the server with --allow HOST instead of trying again.",
	"allow":  "The network reaches the hosts that the user allowed. A refused destination is named in the result, with the rule that would allow it. Tell the user that rule instead of trying again.",
	"open":   "The network is open.",
	"bridge": "The network is open.",
}

// New returns a server. Close ends what its clients started.
func New(o Options) *Server {
	s := &Server{client: o.Client, sandbox: o.Sandbox, spec: o.Spec, workspace: cmp.Or(o.Workspace, "/workspace"), inputs: map[string]*jsonschema.Schema{}}
	s.commands.end, s.commands.endAll = context.WithCancel(context.Background())
	s.mcp = sdk.NewServer(&sdk.Implementation{Name: "caisson", Title: "caisson sandboxes", Version: o.Version}, &sdk.ServerOptions{
		Instructions: instructions + networks[o.Network], Logger: o.Log, Capabilities: &sdk.ServerCapabilities{},
	})
	s.mcp.AddReceivingMiddleware(s.checkArguments)
	s.addCommandTools()
	s.addFileTools()
	s.addWorkspaceTools()
	if o.Sandbox == "" {
		s.addSandboxTools()
	}
	return s
}

// Run serves one client until it goes away or ctx ends.
func (s *Server) Run(ctx context.Context, t sdk.Transport) error { return s.mcp.Run(ctx, t) }

// Close kills every command that a client started, and returns when they have ended.
func (s *Server) Close() { s.commands.close() }

// ref is the sandbox that a call is about.
func (s *Server) ref(named string) (string, error) {
	switch {
	case s.sandbox != "" && named != "" && named != s.sandbox:
		return "", refused("this server works in the sandbox %q only; leave sandbox out", s.sandbox)
	case s.sandbox != "":
		return s.sandbox, nil
	case named == "":
		return "", refused("sandbox is missing: give the name that sandbox_create returned, or one of sandbox_list")
	}
	return named, nil
}
