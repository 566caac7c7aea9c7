package apitest

import (
	"context"
	"slices"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// process is a command. One with an input runs until that is closed; then OnCommand
// decides its outcome. All others end at once. The mutex of the daemon guards it, but for
// what never changes.
type process struct {
	box  *box
	spec *caissonv1.ExecSpec
	done chan struct{} // closed when it has ended

	exec    *caissonv1.Exec // replaced, never changed
	input   []byte
	closed  bool // the input has ended
	outcome Outcome
}

// run starts a command.
func (d *Daemon) run(b *box, spec *caissonv1.ExecSpec, stdin []byte) (*process, error) {
	waits := spec.GetStdin() && len(stdin) == 0
	var o Outcome
	if !waits {
		if o = d.decide(b, spec, stdin); o.Err != nil {
			return nil, o.Err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &process{box: b, spec: spec, done: make(chan struct{}), closed: !waits, exec: &caissonv1.Exec{
		Id: strconv.Itoa(len(b.execs) + 1), SandboxId: b.Id, Args: spec.GetArgs(), State: "running", Stdin: waits, StartedAt: timestamppb.Now(),
	}}
	b.execs = append(b.execs, p)
	if !waits {
		p.endLocked(o, exited(o))
	}
	return p, nil
}

// decide returns the outcome that the test gives a command.
func (d *Daemon) decide(b *box, spec *caissonv1.ExecSpec, stdin []byte) Outcome {
	if d.OnCommand == nil {
		return Outcome{}
	}
	return d.OnCommand(Command{Sandbox: b.Sandbox, Spec: spec, Stdin: stdin})
}

func exited(o Outcome) *caissonv1.Result {
	return &caissonv1.Result{ExitCode: o.ExitCode, Source: "command", Reason: "exited"}
}

// endLocked ends a command that runs.
func (p *process) endLocked(o Outcome, r *caissonv1.Result) {
	if p.exec.State == "exited" {
		return
	}
	r.ExecId = p.exec.Id
	r.Usage, r.Sandbox = &caissonv1.ResultUsage{}, &caissonv1.ResultSandbox{Id: p.box.Id, Network: p.box.Network}
	r.StdoutBytes, r.StderrBytes = int64(len(o.Stdout)), int64(len(o.Stderr))
	p.exec = proto.CloneOf(p.exec)
	p.exec.State, p.exec.Stdin, p.exec.EndedAt, p.exec.Result = "exited", false, timestamppb.Now(), r
	p.exec.StdoutBytes, p.exec.StderrBytes = r.StdoutBytes, r.StderrBytes
	p.outcome, p.closed = o, true
	close(p.done)
}

// exec returns a command that was started.
func (d *Daemon) exec(ref, id string) (*process, error) {
	b, err := d.find(ref)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.IndexFunc(b.execs, func(p *process) bool { return p.exec.Id == id }); i >= 0 {
		return b.execs[i], nil
	}
	return nil, sbxerr.New(sbxerr.ExecNotFound, "apitest.find", "sandbox %q has no command %q", ref, id)
}

// input takes input of a command, and lets OnCommand decide when it is closed.
func (d *Daemon) input(p *process, r *caissonv1.SendInputRequest) (*caissonv1.SendInputResponse, error) {
	state, ended, err := d.takeInput(p, r)
	if err != nil || !ended {
		return state, err
	}
	o := d.decide(p.box, p.spec, p.input) // nothing is added to a closed input
	d.mu.Lock()
	defer d.mu.Unlock()
	p.endLocked(o, exited(o))
	return state, nil
}

// takeInput says as well whether r has closed the input.
func (d *Daemon) takeInput(p *process, r *caissonv1.SendInputRequest) (*caissonv1.SendInputResponse, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	has := int64(len(p.input))
	if p.closed {
		return &caissonv1.SendInputResponse{Offset: has, Closed: true}, false, nil
	}
	offset := has
	if r.Offset != nil {
		offset = *r.Offset
	}
	if offset < 0 || offset > has {
		return nil, false, sbxerr.New(sbxerr.Config, "apitest.input", "offset %d: the command has %d bytes of input", offset, has)
	}
	p.input = append(p.input, after(r.Data, has-offset)...)
	p.closed = r.Close
	return &caissonv1.SendInputResponse{Offset: int64(len(p.input)), Closed: p.closed}, p.closed, nil
}

// signal ends a command, whatever the signal.
func (d *Daemon) signal(p *process, name string) error {
	signal, err := api.ParseSignal(name)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.exec.State == "exited" {
		return sbxerr.New(sbxerr.State, "apitest.signal", "command %s of sandbox %s has ended", p.exec.Id, p.box.Name)
	}
	p.endLocked(Outcome{}, &caissonv1.Result{ExitCode: 128 + int32(signal), Signal: int32(signal), Source: "command", Reason: "signaled"})
	return nil
}

// wait returns a command when it has ended. The error is that of its outcome, or of ctx.
func (d *Daemon) wait(ctx context.Context, p *process) (*caissonv1.Exec, Outcome, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, Outcome{}, sbxerr.Wrap(sbxerr.Canceled, "apitest.wait", ctx.Err())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.exec, p.outcome, p.outcome.Err
}

// started is the first event of a command.
func (d *Daemon) started(p *process) *caissonv1.ExecEvent {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Started{Started: &caissonv1.Started{SandboxId: p.box.Id, SandboxName: p.box.Name, Exec: p.exec}}}
}

// tell streams the events of a command, its output from the offsets on.
func (d *Daemon) tell(ctx context.Context, p *process, stream *connect.ServerStream[caissonv1.ExecEvent], stdout, stderr int64) error {
	if err := stream.Send(d.started(p)); err != nil {
		return err
	}
	e, o, err := d.wait(ctx, p)
	if err != nil {
		return api.Encode(err)
	}
	var events []*caissonv1.ExecEvent
	if rest := after(o.Stdout, stdout); len(rest) > 0 {
		events = append(events, &caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stdout{Stdout: &caissonv1.Output{Offset: stdout, Data: rest}}})
	}
	if rest := after(o.Stderr, stderr); len(rest) > 0 {
		events = append(events, &caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stderr{Stderr: &caissonv1.Output{Offset: stderr, Data: rest}}})
	}
	for _, event := range append(events, &caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Exit{Exit: e.Result}}) {
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	return nil
}

// finish waits for the end of a command and sends all of it.
func (d *Daemon) finish(ctx context.Context, p *process, stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	e, o, err := d.wait(ctx, p)
	if err != nil {
		return api.Encode(err)
	}
	return stream.Send(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Finished{
		Finished: &caissonv1.Finished{Id: e.Id, Result: e.Result, Stdout: o.Stdout, Stderr: o.Stderr},
	}})
}

func after(data []byte, offset int64) []byte { return data[min(offset, int64(len(data))):] }
