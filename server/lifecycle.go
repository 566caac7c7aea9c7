package server

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
)

// The calls that change a sandbox, or wait for it. Each answers with the
// sandbox as it is then.

func (s sandboxes) Create(ctx context.Context, r *connect.Request[caissonv1.CreateRequest]) (*connect.Response[caissonv1.Sandbox], error) {
	req, err := createRequestOf(r.Msg)
	if err != nil {
		return nil, fail(err)
	}
	info, err := s.runtime.Create(ctx, req)
	return reply(sandboxPB(info), err)
}

func (s sandboxes) Update(ctx context.Context, r *connect.Request[caissonv1.UpdateRequest]) (*connect.Response[caissonv1.Sandbox], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	req, err := updateOf(r.Msg)
	if err != nil {
		return nil, fail(err)
	}
	info, err := s.runtime.Update(ctx, r.Msg.Ref, req)
	return reply(sandboxPB(info), err)
}

func (s sandboxes) AttachWorkspace(ctx context.Context, r *connect.Request[caissonv1.AttachWorkspaceRequest]) (*connect.Response[caissonv1.Sandbox], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	w := workspaceOf(r.Msg.Workspace)
	if w == nil {
		return nil, fail(sbxerr.New(sbxerr.APIUsage, "server.attach", "workspace is absent: give a directory"))
	}
	info, err := s.runtime.AttachFiles(ctx, r.Msg.Ref, plan.AttachRequest{Workspace: w})
	return reply(sandboxPB(info), err)
}

func (s sandboxes) Pause(ctx context.Context, r *connect.Request[caissonv1.PauseRequest]) (*connect.Response[caissonv1.Sandbox], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	info, err := s.runtime.Pause(ctx, r.Msg.Ref)
	return reply(sandboxPB(info), err)
}

func (s sandboxes) Resume(ctx context.Context, r *connect.Request[caissonv1.ResumeRequest]) (*connect.Response[caissonv1.Sandbox], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	info, err := s.runtime.Resume(ctx, r.Msg.Ref)
	return reply(sandboxPB(info), err)
}

func (s sandboxes) Restart(ctx context.Context, r *connect.Request[caissonv1.RestartRequest]) (*connect.Response[caissonv1.Sandbox], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	info, err := s.runtime.Restart(ctx, r.Msg.Ref)
	return reply(sandboxPB(info), err)
}

func (s sandboxes) Clean(ctx context.Context, r *connect.Request[caissonv1.CleanRequest]) (*connect.Response[caissonv1.CleanResponse], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	done, err := s.runtime.Clean(ctx, r.Msg.Ref)
	return reply(cleanedPB(done), err)
}

func (s sandboxes) Stop(ctx context.Context, r *connect.Request[caissonv1.StopRequest]) (*connect.Response[caissonv1.Sandbox], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	grace, err := notNegative("grace", r.Msg.Grace)
	if err != nil {
		return nil, fail(err)
	}
	info, err := s.runtime.Stop(ctx, r.Msg.Ref, grace)
	return reply(sandboxPB(info), err)
}

func (s sandboxes) Wait(ctx context.Context, r *connect.Request[caissonv1.WaitRequest]) (*connect.Response[caissonv1.Sandbox], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	info, err := s.runtime.Wait(ctx, r.Msg.Ref)
	return reply(sandboxPB(info), err)
}
