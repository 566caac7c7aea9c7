package server

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
)

// sandboxes serves SandboxService.
type sandboxes struct {
	runtime    Sandboxes
	workspaces Workspaces
}

// reply is the end of every unary handler.
func reply[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, fail(err)
	}
	return connect.NewResponse(m), nil
}

func (s sandboxes) List(ctx context.Context, r *connect.Request[caissonv1.ListRequest]) (*connect.Response[caissonv1.ListResponse], error) {
	f, err := filterOf(r.Msg, time.Now())
	if err != nil {
		return nil, fail(err)
	}
	infos, err := s.runtime.List(ctx)
	if err == nil && slices.Contains(r.Msg.States, string(runtime.StateRemoved)) {
		past, pastErr := s.runtime.Past(ctx)
		infos, err = append(infos, past...), pastErr
	}
	if err != nil {
		return nil, fail(err)
	}
	infos = slices.DeleteFunc(infos, func(i runtime.Info) bool { return !f.selects(i) })
	infos, next, err := page("sandboxes", infos, func(i runtime.Info) string { return timeKey(i.CreatedAt) + i.ID }, r.Msg)
	return reply(&caissonv1.ListResponse{Sandboxes: each(infos, sandboxPB), Next: next}, err)
}

func (s sandboxes) Inspect(ctx context.Context, r *connect.Request[caissonv1.InspectRequest]) (*connect.Response[caissonv1.InspectResponse], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	detail, err := s.runtime.Inspect(ctx, r.Msg.Ref)
	if err != nil {
		return nil, fail(err)
	}
	return connect.NewResponse(detailPB(detail)), nil
}

func (s sandboxes) Remove(ctx context.Context, r *connect.Request[caissonv1.RemoveRequest]) (*connect.Response[caissonv1.RemoveResponse], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	id, err := s.runtime.Remove(ctx, r.Msg.Ref, r.Msg.Force)
	m := &caissonv1.RemoveResponse{Id: id}
	if err == nil && s.workspaces.Has(id) {
		m.Changeset = id
	}
	return reply(m, err)
}

func (s sandboxes) Cleanup(ctx context.Context, r *connect.Request[caissonv1.CleanupRequest]) (*connect.Response[caissonv1.CleanupResponse], error) {
	leftovers, err := s.runtime.Cleanup(ctx, r.Msg.DryRun)
	return reply(&caissonv1.CleanupResponse{Leftovers: each(leftovers, leftoverPB)}, err)
}

func (s sandboxes) Spec(ctx context.Context, r *connect.Request[caissonv1.SpecRequest]) (*connect.Response[caissonv1.SpecResponse], error) {
	req, err := requestOf(r.Msg.Spec)
	if err != nil {
		return nil, fail(err)
	}
	view, err := s.runtime.Spec(ctx, req)
	if err != nil {
		return nil, fail(err)
	}
	out := specPB(view)
	if r.Msg.SeccompPfc {
		out.SeccompPfc, err = s.runtime.PseudoFilter(ctx, req)
	}
	return reply(out, err)
}
