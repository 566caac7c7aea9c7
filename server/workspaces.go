package server

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/apply"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/patches"
	"github.com/caisson-run/caisson/runtime/workspaces"
)

// workspaceService serves WorkspaceService.
type workspaceService struct{ workspaces Workspaces }

func (s workspaceService) Diff(ctx context.Context, r *connect.Request[caissonv1.DiffRequest]) (*connect.Response[caissonv1.DiffResponse], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	if r.Msg.Patch {
		p, err := s.workspaces.Patch(ctx, r.Msg.Ref, r.Msg.IncludeControl)
		return reply(&caissonv1.DiffResponse{Changes: each(p.Changes, changePB), Truncated: p.More, Patch: p.Text, Left: each(p.Left, leftPB)}, err)
	}
	if r.Msg.IncludeControl {
		return nil, fail(sbxerr.New(sbxerr.APIUsage, "server.diff", "include_control is of a patch: give patch, too"))
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

func (s workspaceService) ListChangesets(ctx context.Context, r *connect.Request[caissonv1.ListChangesetsRequest]) (*connect.Response[caissonv1.ListChangesetsResponse], error) {
	list, err := s.workspaces.List(ctx)
	if err != nil {
		return nil, fail(err)
	}
	list, next, err := page("changesets", list, func(c workspaces.Changeset) string { return newestKey(c.KeptAt) + c.ID }, r.Msg)
	return reply(&caissonv1.ListChangesetsResponse{Changesets: each(list, changesetPB), Next: next}, err)
}

func (s workspaceService) DiscardChangeset(ctx context.Context, r *connect.Request[caissonv1.DiscardChangesetRequest]) (*connect.Response[caissonv1.DiscardChangesetResponse], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	return reply(&caissonv1.DiscardChangesetResponse{}, s.workspaces.Discard(ctx, r.Msg.Ref))
}

func changesetPB(c workspaces.Changeset) *caissonv1.Changeset {
	return &caissonv1.Changeset{
		Id: c.ID, Name: c.Name, Owner: c.Owner, Workspace: text(c.Dir), KeptAt: timestamp(c.KeptAt), Session: c.Session, Labels: c.Labels, SizeBytes: c.Bytes,
	}
}

func leftPB(n patches.Note) *caissonv1.ChangeNote { return notePB(apply.Note(n)) }

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
