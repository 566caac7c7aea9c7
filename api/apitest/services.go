package apitest

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

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

func (s sandboxes) Run(ctx context.Context, r *connect.Request[caissonv1.RunRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
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
	return s.d.tell(ctx, e, stream, 0, 0)
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

func (s execs) Start(ctx context.Context, r *connect.Request[caissonv1.StartExecRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	b, err := s.d.find(r.Msg.Ref)
	if err != nil {
		return api.Encode(err)
	}
	spec := proto.CloneOf(r.Msg.Exec)
	if spec != nil && r.Msg.Wait {
		spec.Stdin = false // the request has all of it
	}
	p, err := s.d.run(b, spec, r.Msg.Stdin)
	if err != nil {
		return api.Encode(err)
	}
	switch {
	case r.Msg.Wait:
		return s.d.finish(ctx, p, stream)
	case r.Msg.Attach:
		return s.d.tell(ctx, p, stream, 0, 0)
	}
	return stream.Send(s.d.started(p))
}

func (s execs) Attach(ctx context.Context, r *connect.Request[caissonv1.AttachExecRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	p, err := s.d.exec(r.Msg.Ref, r.Msg.Id)
	if err != nil {
		return api.Encode(err)
	}
	return s.d.tell(ctx, p, stream, r.Msg.StdoutOffset, r.Msg.StderrOffset)
}

func (s execs) SendInput(_ context.Context, r *connect.Request[caissonv1.SendInputRequest]) (*connect.Response[caissonv1.SendInputResponse], error) {
	p, err := s.d.exec(r.Msg.Ref, r.Msg.Id)
	if err != nil {
		return nil, api.Encode(err)
	}
	answer, err := s.d.input(p, r.Msg)
	if err != nil {
		return nil, api.Encode(err)
	}
	return connect.NewResponse(answer), nil
}

func (s execs) Signal(_ context.Context, r *connect.Request[caissonv1.SignalExecRequest]) (*connect.Response[caissonv1.SignalExecResponse], error) {
	p, err := s.d.exec(r.Msg.Ref, r.Msg.Id)
	if err != nil {
		return nil, api.Encode(err)
	}
	if err := s.d.signal(p, r.Msg.Signal); err != nil {
		return nil, api.Encode(err)
	}
	return connect.NewResponse(&caissonv1.SignalExecResponse{}), nil
}

func (s execs) Wait(ctx context.Context, r *connect.Request[caissonv1.WaitExecRequest]) (*connect.Response[caissonv1.Exec], error) {
	p, err := s.d.exec(r.Msg.Ref, r.Msg.Id)
	if err != nil {
		return nil, api.Encode(err)
	}
	e, _, err := s.d.wait(ctx, p)
	if err != nil {
		return nil, api.Encode(err)
	}
	return connect.NewResponse(e), nil
}

func (s execs) List(_ context.Context, r *connect.Request[caissonv1.ListExecsRequest]) (*connect.Response[caissonv1.ListExecsResponse], error) {
	b, err := s.d.find(r.Msg.Ref)
	if err != nil {
		return nil, api.Encode(err)
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	list := &caissonv1.ListExecsResponse{}
	for _, p := range b.execs {
		list.Execs = append(list.Execs, p.exec)
	}
	return connect.NewResponse(list), nil
}
