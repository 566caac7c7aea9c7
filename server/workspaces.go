package server

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime/changes"
)

// workspaceService serves WorkspaceService.
type workspaceService struct{ workspaces Workspaces }

func (s workspaceService) Diff(ctx context.Context, r *connect.Request[caissonv1.DiffRequest]) (*connect.Response[caissonv1.DiffResponse], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	list, more, err := s.workspaces.Diff(ctx, r.Msg.Ref)
	return reply(&caissonv1.DiffResponse{Changes: each(list, changePB), Truncated: more}, err)
}

func changePB(c changes.Change) *caissonv1.Change {
	return &caissonv1.Change{
		Kind: string(c.Kind), Path: text(c.Path), PathBytes: unlessText(c.Path), OldPath: text(c.From), OldPathBytes: unlessText(c.From),
		Old: changeStatePB(c.Old), New: changeStatePB(c.New),
	}
}

func changeStatePB(s changes.State) *caissonv1.ChangeState {
	if s.Type == "" {
		return nil
	}
	return &caissonv1.ChangeState{Type: s.Type, Mode: s.Mode, SizeBytes: s.Size, Link: text(s.Link)}
}
