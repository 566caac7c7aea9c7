package servertest

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server"
)

var (
	_ server.Sandboxes = (*Fake)(nil)
	_ server.Execs     = (*Fake)(nil)
	_ server.System    = (*Fake)(nil)
)

// Create implements server.Sandboxes.
func (f *Fake) Create(_ context.Context, req plan.CreateRequest) (runtime.Info, error) {
	if f.OnCreate == nil {
		return runtime.Info{ID: "id", Name: req.Name, State: runtime.StateRunning}, nil
	}
	return f.OnCreate(req)
}

// Update implements server.Sandboxes.
func (f *Fake) Update(_ context.Context, ref string, req runtime.UpdateRequest) (runtime.Info, error) {
	if f.OnUpdate == nil {
		return runtime.Info{}, absent("sandbox", ref)
	}
	return f.OnUpdate(ref, req)
}

// AttachFiles implements server.Sandboxes.
func (f *Fake) AttachFiles(ctx context.Context, ref string, r plan.AttachRequest) (runtime.Info, error) {
	switch {
	case r.Workspace != nil && f.OnAttachWorkspace != nil:
		return f.OnAttachWorkspace(ref, *r.Workspace)
	case r.Workspace != nil:
		return runtime.Info{}, absent("sandbox", ref)
	}
	if _, err := (snapshotFake{f}).Inspect(ctx, r.Snapshot); err != nil {
		return runtime.Info{}, err
	}
	d, err := f.Inspect(ctx, ref)
	if err != nil {
		return runtime.Info{}, err
	}
	return d.Info, nil
}

// Pause implements server.Sandboxes.
func (f *Fake) Pause(_ context.Context, ref string) (runtime.Info, error) {
	if f.OnPause == nil {
		return runtime.Info{}, absent("sandbox", ref)
	}
	return f.OnPause(ref)
}

// Resume implements server.Sandboxes.
func (f *Fake) Resume(_ context.Context, ref string) (runtime.Info, error) {
	if f.OnResume == nil {
		return runtime.Info{}, absent("sandbox", ref)
	}
	return f.OnResume(ref)
}

// Stop implements server.Sandboxes.
func (f *Fake) Stop(_ context.Context, ref string, grace *time.Duration) (runtime.Info, error) {
	if f.OnStop == nil {
		return runtime.Info{}, absent("sandbox", ref)
	}
	return f.OnStop(ref, grace)
}

// Wait implements server.Sandboxes.
func (f *Fake) Wait(ctx context.Context, ref string) (runtime.Info, error) {
	if f.OnWait == nil {
		return runtime.Info{}, absent("sandbox", ref)
	}
	return f.OnWait(ctx, ref)
}

// Exec implements server.Execs. Without OnExec the command succeeds at once.
func (f *Fake) Exec(ctx context.Context, ref string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
	if f.OnExec == nil {
		rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "exec", SandboxID: "id", State: runtime.ExecRunning, TTY: req.TTY != nil})
		return &runtime.Result{Source: "command", Reason: runtime.ReasonExited}, nil
	}
	return f.OnExec(ctx, ref, req, rio)
}

// StartExec implements server.Execs.
func (f *Fake) StartExec(_ context.Context, ref string, req plan.ExecRequest) (runtime.ExecInfo, error) {
	if f.OnStartEx == nil {
		return runtime.ExecInfo{}, absent("sandbox", ref)
	}
	return f.OnStartEx(ref, req)
}

// Attach implements server.Execs.
func (f *Fake) Attach(ctx context.Context, ref, exec string, o runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
	if f.OnAttach == nil {
		return nil, absent("command", exec)
	}
	return f.OnAttach(ctx, ref, exec, o, rio)
}

// Execs implements server.Execs.
func (f *Fake) Execs(_ context.Context, ref string) ([]runtime.ExecInfo, error) {
	if f.OnExecs == nil {
		return nil, absent("sandbox", ref)
	}
	return f.OnExecs(ref)
}

// WaitExec implements server.Execs.
func (f *Fake) WaitExec(ctx context.Context, ref, exec string) (runtime.ExecInfo, error) {
	if f.OnWaitEx == nil {
		return runtime.ExecInfo{}, absent("command", exec)
	}
	return f.OnWaitEx(ctx, ref, exec)
}

// SignalExec implements server.Execs.
func (f *Fake) SignalExec(_ context.Context, ref, exec string, req runtime.SignalRequest) error {
	if f.OnSignal == nil {
		return absent("command", exec)
	}
	return f.OnSignal(ref, exec, req)
}

// SendInput implements server.Execs.
func (f *Fake) SendInput(ctx context.Context, ref, exec string, req runtime.InputRequest) (runtime.InputState, error) {
	if f.OnInput == nil {
		return runtime.InputState{}, absent("command", exec)
	}
	return f.OnInput(ctx, ref, exec, req)
}

// ResizeExec implements server.Execs.
func (f *Fake) ResizeExec(_ context.Context, ref, exec string, size plan.WinSize) error {
	if f.OnResize == nil {
		return absent("command", exec)
	}
	return f.OnResize(ref, exec, size)
}

// Restart implements server.Sandboxes.
func (f *Fake) Restart(_ context.Context, ref string) (runtime.Info, error) {
	if f.OnRestart == nil {
		return runtime.Info{}, absent("sandbox", ref)
	}
	return f.OnRestart(ref)
}

// Clean implements server.Sandboxes.
func (f *Fake) Clean(context.Context, string) (runtime.Cleaned, error) { return f.Cleaned, nil }
