package server

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime/apply"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/workspaces"
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

func (s workspaceService) Apply(ctx context.Context, r *connect.Request[caissonv1.ApplyRequest]) (*connect.Response[caissonv1.ApplyResponse], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	done, err := s.workspaces.Apply(ctx, r.Msg.Ref, workspaces.Request{
		Paths: r.Msg.Paths, Side: apply.Side(r.Msg.Conflicts), IncludeControl: r.Msg.IncludeControl, DryRun: r.Msg.DryRun,
	})
	return reply(&caissonv1.ApplyResponse{
		Changes: each(done.Changes, changePB), Control: each(done.Control, changePB), Conflicts: each(done.Conflicts, notePB),
		Left: each(done.Left, notePB), Notes: each(done.Notes, notePB),
	}, err)
}

func notePB(n apply.Note) *caissonv1.ChangeNote {
	return &caissonv1.ChangeNote{Path: text(n.Path), PathBytes: unlessText(n.Path), Reason: n.Reason}
}

func changePB(c changes.Change) *caissonv1.Change {
	return &caissonv1.Change{
		Kind: string(c.Kind), Path: text(c.Path), PathBytes: unlessText(c.Path), OldPath: text(c.From), OldPathBytes: unlessText(c.From),
		Old: changeStatePB(c.Old), New: changeStatePB(c.New), Control: c.Control,
	}
}

func changeStatePB(s changes.State) *caissonv1.ChangeState {
	if s.Type == "" {
		return nil
	}
	return &caissonv1.ChangeState{Type: s.Type, Mode: s.Mode, SizeBytes: s.Size, Link: text(s.Link)}
}
