package mcp

import (
	"context"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

type createInput struct {
	Name  string `json:"name,omitempty" jsonschema:"a name for the sandbox; made up by default"`
	Image string `json:"image,omitempty" jsonschema:"an image that the daemon has; the user's choice by default"`
}

type sandboxOutput struct {
	Sandbox   string    `json:"sandbox" jsonschema:"the name to give to the other tools"`
	Image     string    `json:"image"`
	State     string    `json:"state"`
	Network   string    `json:"network"`
	Workspace string    `json:"workspace,omitempty" jsonschema:"the directory of the host that is mounted inside"`
	Created   time.Time `json:"created"`
}

type sandboxesOutput struct {
	Sandboxes []sandboxOutput `json:"sandboxes"`
}

type deleteInput struct {
	Sandbox string `json:"sandbox" jsonschema:"the sandbox to remove, with its files and commands"`
}

type deleteOutput struct {
	Removed string `json:"removed"`
}

func (s *Server) addSandboxTools() {
	tool(s, &sdk.Tool{Name: "sandbox_create", Annotations: hints("Create a sandbox", false, false, false),
		Description: "Create an isolated sandbox for commands and files, and return its name. Limits and network are those that the user chose."}, s.create)
	tool(s, &sdk.Tool{Name: "sandbox_list", Annotations: hints("List sandboxes", true, false, false),
		Description: "List the user's sandboxes."}, s.list)
	tool(s, &sdk.Tool{Name: "sandbox_delete", Annotations: hints("Remove a sandbox", false, true, false),
		Description: "End a sandbox and remove all of it. Its files are lost, but for those of the workspace."}, s.delete)
}

func (s *Server) create(ctx context.Context, _ *sdk.CallToolRequest, in createInput) (*sdk.CallToolResult, sandboxOutput, error) {
	spec := &caissonv1.SandboxSpec{}
	if s.spec != nil {
		spec = proto.Clone(s.spec).(*caissonv1.SandboxSpec)
	}
	spec.Name = in.Name
	if in.Image != "" {
		spec.Image = in.Image
	}
	made, err := s.client.Create(ctx, &caissonv1.CreateRequest{Spec: spec})
	if err != nil {
		return nil, sandboxOutput{}, failure(err)
	}
	return nil, sandboxOf(made), nil
}

func (s *Server) list(ctx context.Context, _ *sdk.CallToolRequest, _ listInput) (*sdk.CallToolResult, sandboxesOutput, error) {
	answer, err := s.client.List(ctx, &caissonv1.ListRequest{})
	if err != nil {
		return nil, sandboxesOutput{}, failure(err)
	}
	out := sandboxesOutput{Sandboxes: []sandboxOutput{}}
	for _, box := range answer.GetSandboxes() {
		out.Sandboxes = append(out.Sandboxes, sandboxOf(box))
	}
	return nil, out, nil
}

func (s *Server) delete(ctx context.Context, _ *sdk.CallToolRequest, in deleteInput) (*sdk.CallToolResult, deleteOutput, error) {
	if _, err := s.client.Remove(ctx, &caissonv1.RemoveRequest{Ref: in.Sandbox, Force: true}); err != nil {
		return nil, deleteOutput{}, failure(err)
	}
	s.shells.mu.Lock()
	delete(s.shells.found, in.Sandbox) // another of that name may have another image
	s.shells.mu.Unlock()
	return nil, deleteOutput{Removed: in.Sandbox}, nil
}

func sandboxOf(b *caissonv1.Sandbox) sandboxOutput {
	return sandboxOutput{
		Sandbox: b.GetName(), Image: b.GetImage(), State: b.GetState(), Network: b.GetNetwork(),
		Workspace: b.GetWorkspace().GetDir(), Created: b.GetCreatedAt().AsTime(),
	}
}
