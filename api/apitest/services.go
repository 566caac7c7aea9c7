package apitest

import (
	"context"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// sandboxes serves SandboxService. Other calls of it answer "unimplemented".
type sandboxes struct {
	caissonv1connect.UnimplementedSandboxServiceHandler
	d *Daemon
}

func (s sandboxes) Create(_ context.Context, r *connect.Request[caissonv1.CreateRequest]) (*connect.Response[caissonv1.Sandbox], error) {
	b, err := s.d.create(r.Msg.Spec, r.Msg.Ensure)
	if err != nil {
		return nil, api.Encode(err)
	}
	return connect.NewResponse(b.Sandbox), nil
}

func (s sandboxes) Run(_ context.Context, r *connect.Request[caissonv1.RunRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	b, err := s.d.create(r.Msg.GetSpec().GetSandbox(), false)
	if err != nil {
		return api.Encode(err)
	}
	if !r.Msg.GetSpec().GetDetach() {
		defer s.d.remove(b)
	}
	e, err := s.d.run(b, r.Msg.GetSpec().GetExec(), r.Msg.Stdin)
	if err != nil {
		return api.Encode(err)
	}
	return e.tell(b, stream, 0, 0)
}

func (s sandboxes) List(_ context.Context, r *connect.Request[caissonv1.ListRequest]) (*connect.Response[caissonv1.ListResponse], error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	list := &caissonv1.ListResponse{}
	for _, b := range s.d.boxes {
		if matches(b.Labels, r.Msg.Labels) {
			list.Sandboxes = append(list.Sandboxes, b.Sandbox)
		}
	}
	return connect.NewResponse(list), nil
}

func matches(labels, asked map[string]string) bool {
	for k, v := range asked {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (s sandboxes) Inspect(_ context.Context, r *connect.Request[caissonv1.InspectRequest]) (*connect.Response[caissonv1.InspectResponse], error) {
	b, err := s.d.find(r.Msg.Ref)
	if err != nil {
		return nil, api.Encode(err)
	}
	return connect.NewResponse(&caissonv1.InspectResponse{Sandbox: b.Sandbox}), nil
}

func (s sandboxes) Remove(_ context.Context, r *connect.Request[caissonv1.RemoveRequest]) (*connect.Response[caissonv1.RemoveResponse], error) {
	b, err := s.d.find(r.Msg.Ref)
	if err == nil && !r.Msg.Force {
		err = sbxerr.New(sbxerr.State, "apitest.remove", "sandbox %q runs", r.Msg.Ref)
	}
	if err != nil {
		return nil, api.Encode(err)
	}
	s.d.remove(b)
	return connect.NewResponse(&caissonv1.RemoveResponse{Id: b.Id}), nil
}

// execs serves ExecService. Other calls of it answer "unimplemented".
type execs struct {
	caissonv1connect.UnimplementedExecServiceHandler
	d *Daemon
}

func (s execs) Exec(_ context.Context, r *connect.Request[caissonv1.ExecRequest]) (*connect.Response[caissonv1.ExecResponse], error) {
	b, err := s.d.find(r.Msg.Ref)
	if err != nil {
		return nil, api.Encode(err)
	}
	e, err := s.d.run(b, r.Msg.Exec, r.Msg.Stdin)
	if err != nil {
		return nil, api.Encode(err)
	}
	return connect.NewResponse(&caissonv1.ExecResponse{Id: e.Id, Result: e.Result, Stdout: e.outcome.Stdout, Stderr: e.outcome.Stderr}), nil
}

func (s execs) Start(_ context.Context, r *connect.Request[caissonv1.StartExecRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	b, err := s.d.find(r.Msg.Ref)
	if err != nil {
		return api.Encode(err)
	}
	e, err := s.d.run(b, r.Msg.Exec, r.Msg.Stdin)
	if err != nil {
		return api.Encode(err)
	}
	if r.Msg.Detach {
		return stream.Send(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Started{Started: &caissonv1.Started{SandboxId: b.Id, SandboxName: b.Name, Exec: e.Exec}}})
	}
	return e.tell(b, stream, 0, 0)
}

func (s execs) Connect(_ context.Context, r *connect.Request[caissonv1.ConnectExecRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	e, err := s.d.exec(r.Msg.Ref, r.Msg.Id)
	if err != nil {
		return api.Encode(err)
	}
	b, err := s.d.find(r.Msg.Ref)
	if err != nil {
		return api.Encode(err)
	}
	return e.tell(b, stream, r.Msg.StdoutOffset, r.Msg.StderrOffset)
}

func (s execs) Wait(_ context.Context, r *connect.Request[caissonv1.WaitExecRequest]) (*connect.Response[caissonv1.Exec], error) {
	e, err := s.d.exec(r.Msg.Ref, r.Msg.Id)
	if err != nil {
		return nil, api.Encode(err)
	}
	return connect.NewResponse(e.Exec), nil
}

func (s execs) List(_ context.Context, r *connect.Request[caissonv1.ListExecsRequest]) (*connect.Response[caissonv1.ListExecsResponse], error) {
	b, err := s.d.find(r.Msg.Ref)
	if err != nil {
		return nil, api.Encode(err)
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	list := &caissonv1.ListExecsResponse{}
	for _, e := range b.execs {
		list.Execs = append(list.Execs, e.Exec)
	}
	return connect.NewResponse(list), nil
}
