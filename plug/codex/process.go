package codex

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// keepEnded is how long the events of a process are kept after its end.
const keepEnded = 30 * time.Second

// failedCode is the exit code of a command that the runtime failed.
const failedCode = 125

// terminal is the size that Codex expects.
var terminal = api.Size{Rows: 24, Cols: 80}

// processes are those that Codex started, by its IDs.
type processes struct {
	mu   sync.Mutex
	list map[string]*process // nil: it has ended long ago
}

// process is a command.
type process struct {
	*events
	input  *input // nil: it has none
	cancel context.CancelFunc

	begun chan struct{} // closed when it runs, or has failed to
	ref   string        // these are set by then
	exec  string
	err   error
}

type startParams struct {
	ProcessID             string
	Argv                  []string
	Arg0                  *string
	Cwd                   string
	Env                   map[string]string
	EnvPolicy             *envPolicy
	TTY                   bool
	PipeStdin             bool
	Sandbox               *sandboxContext
	EnforceManagedNetwork bool
	ManagedNetwork        *struct{}
	NetworkProxy          *struct{}
}

// startProcess answers once the command runs.
func (s *session) startProcess(ctx context.Context, p startParams) (any, error) {
	dir, err := pathOf(p.Cwd)
	switch {
	case err != nil:
		return nil, err
	case p.ProcessID == "":
		return nil, refuse(codeParams, "processId is missing")
	case len(p.Argv) == 0 || p.Argv[0] == "":
		return nil, refuse(codeParams, "argv must not be empty")
	case p.Arg0 != nil && *p.Arg0 != p.Argv[0]:
		return nil, refuse(codeParams, "arg0 cannot differ from argv[0]")
	case p.ManagedNetwork != nil || p.NetworkProxy != nil:
		return nil, refuse(codeParams, "rules of the network for one command cannot be enforced: give them to the sandbox (caisson plug codex --allow)")
	}
	policy, err := p.Sandbox.policy()
	if err != nil {
		return nil, err
	}
	policy.offline = policy.offline || p.EnforceManagedNetwork
	ctx, cancel := context.WithCancel(ctx)
	proc := &process{cancel: cancel, begun: make(chan struct{})}
	proc.events = newEvents(ctx, p.ProcessID, s.current)
	if p.TTY || p.PipeStdin {
		proc.input = newInput()
	}
	if !s.processes.add(p.ProcessID, proc) {
		cancel()
		return nil, refuse(codeRequest, "process id %.100q was used before", p.ProcessID)
	}
	s.waiting.Go(func() {
		defer cancel()
		s.runProcess(ctx, proc, p, dir, policy)
		time.AfterFunc(keepEnded, func() { s.processes.forget(p.ProcessID) })
	})
	return later(func() (any, error) {
		<-proc.begun
		return map[string]any{"processId": p.ProcessID}, proc.err
	}), nil
}

// runProcess runs a command to its end.
func (s *session) runProcess(ctx context.Context, proc *process, p startParams, dir string, policy policy) {
	spec, err := s.command(ctx, proc, p, dir, policy)
	if err != nil {
		proc.err = err
		close(proc.begun)
		return
	}
	rio := api.IO{Stdout: stream{proc.events, "stdout"}, Stderr: stream{proc.events, "stderr"}}
	errs := rio.Stderr
	if p.TTY {
		rio.Stdout = stream{proc.events, "pty"}
		errs = rio.Stdout
	}
	if proc.input != nil {
		rio.Stdin = proc.input
		defer close(proc.input.done)
	}
	rio.Started = func(s *caissonv1.Started) {
		proc.exec = s.GetExec().GetId()
		close(proc.begun)
	}
	result, err := s.boxes.client.Exec(ctx, proc.ref, spec, rio)
	code := result.GetExitCode()
	switch {
	case err != nil && proc.exec == "":
		proc.err = err
		close(proc.begun)
		return
	case err != nil:
		code = failedCode
		_, _ = errs.Write([]byte(wired(err).Message + "\n")) // never fails
	case note(result) != "":
		_, _ = errs.Write([]byte(note(result) + "\n"))
	}
	proc.exit(code)
	if result.GetRemaining() > 0 {
		s.followRest(ctx, proc, result, rio)
	}
	proc.close()
}

// followRest tells what the processes write that a command has left behind, until none of
// them can. They end with the session.
func (s *session) followRest(ctx context.Context, proc *process, r *caissonv1.Result, rio api.IO) {
	err := s.boxes.client.Logs(ctx, &caissonv1.LogsRequest{
		Ref: proc.ref, ExecId: proc.exec, Follow: true, StdoutOffset: r.GetStdoutBytes(), StderrOffset: r.GetStderrBytes(),
	}, rio.Stdout, rio.Stderr)
	if ctx.Err() != nil {
		err = s.boxes.client.End(ctx, proc.ref, proc.exec)
	}
	if err != nil {
		_, _ = rio.Stdout.Write([]byte(wired(err).Message + "\n")) // never fails
	}
}

// note says why the runtime ended a command.
func note(r *caissonv1.Result) string {
	switch {
	case r.GetOomKilled():
		return "caisson: the memory of the sandbox was used up; the user can give it more with --memory"
	case r.GetPidsLimitHit():
		return "caisson: the sandbox's limit of processes was reached; the user can raise it with --pids"
	case r.GetSource() == "runtime":
		return "caisson: the sandbox ended the command: " + r.GetReason()
	}
	return ""
}

// command is what is run in the sandbox.
func (s *session) command(ctx context.Context, proc *process, p startParams, dir string, policy policy) (*caissonv1.ExecSpec, error) {
	b, err := s.confined(ctx, policy)
	if err != nil {
		return nil, err
	}
	set, unset, err := p.EnvPolicy.apply(b.env, p.Env)
	if err != nil {
		return nil, err
	}
	args, err := without(unset, p.Argv)
	if err != nil {
		return nil, err
	}
	if workspace := s.boxes.workspace(); !under(workspace, dir) {
		if there, err := s.exists(ctx, b, dir); err != nil || !there {
			return nil, cmp.Or(err, refuse(codeFailed, "%s is not in the sandbox, which has %s of the host alone: start Codex in that directory, without --cd", dir, workspace))
		}
	}
	proc.ref = b.ref
	spec := &caissonv1.ExecSpec{Args: args, Env: set, Workdir: dir, Stdin: proc.input != nil}
	if p.TTY {
		spec.Tty = terminal.Message()
	}
	return spec, nil
}

func (l *processes) add(id string, p *process) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, used := l.list[id]; used {
		return false
	}
	if l.list == nil {
		l.list = map[string]*process{}
	}
	l.list[id] = p
	return true
}

// forget drops all of a process but its ID, which stays used.
func (l *processes) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list[id] = nil
}

// each calls f with the events of each process that is not forgotten.
func (l *processes) each(f func(*events)) {
	l.mu.Lock()
	list := slices.Collect(maps.Values(l.list))
	l.mu.Unlock()
	for _, p := range list {
		if p != nil {
			f(p.events)
		}
	}
}

// find returns nil where there is no such process.
func (l *processes) find(id string) *process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list[id]
}

// runs reports whether a process has begun and not ended. It waits for the beginning.
func (p *process) runs() bool {
	if p == nil {
		return false
	}
	<-p.begun
	return p.err == nil && !p.exited()
}

type readParams struct {
	ProcessID string
	AfterSeq  *uint32
	MaxBytes  *int
	WaitMs    *int64
}

func (s *session) readProcess(ctx context.Context, p readParams) (any, error) {
	proc := s.processes.find(p.ProcessID)
	if proc == nil {
		return nil, refuse(codeRequest, "unknown process id %.100q", p.ProcessID)
	}
	var after, wait int64
	limit := math.MaxInt
	if p.AfterSeq != nil {
		after = int64(*p.AfterSeq)
	}
	if p.MaxBytes != nil {
		limit = *p.MaxBytes
	}
	if p.WaitMs != nil {
		wait = min(*p.WaitMs, int64(time.Hour/time.Millisecond))
	}
	return later(func() (any, error) {
		return proc.read(ctx, after, limit, time.Duration(wait)*time.Millisecond)
	}), nil
}

type writeParams struct {
	ProcessID string
	Chunk     []byte
	WriteID   string
}

// writeProcess takes input in the order in which it comes.
func (s *session) writeProcess(_ context.Context, p writeParams) (any, error) {
	proc := s.processes.find(p.ProcessID)
	status := "accepted"
	switch {
	case p.WriteID == "":
		return nil, refuse(codeParams, "writeId is missing")
	case proc == nil || proc.exited():
		status = "unknownProcess"
	case proc.input == nil:
		status = "stdinClosed"
	case !proc.input.add(p.WriteID, p.Chunk):
		return nil, refuse(codeFailed, "the process has not read %d bytes of its input", maxInput)
	}
	return map[string]any{"status": status}, nil
}

type signalParams struct{ ProcessID, Signal string }

func (s *session) signalProcess(ctx context.Context, p signalParams) (any, error) {
	if p.Signal != "interrupt" {
		return nil, refuse(codeParams, "unknown signal %.100q: there is interrupt alone", p.Signal)
	}
	return later(func() (any, error) {
		proc := s.processes.find(p.ProcessID)
		if !proc.runs() {
			return struct{}{}, nil
		}
		err := s.boxes.client.Kill(ctx, proc.ref, proc.exec, syscall.SIGINT, false)
		if errors.Is(err, sbxerr.State) || errors.Is(err, sbxerr.NotFound) || errors.Is(err, sbxerr.ExecNotFound) {
			err = nil // it has ended
		}
		return struct{}{}, err
	}), nil
}

type terminateParams struct{ ProcessID string }

// terminateProcess kills a command and all that it started, also what it has left behind.
func (s *session) terminateProcess(ctx context.Context, p terminateParams) (any, error) {
	return later(func() (any, error) {
		proc := s.processes.find(p.ProcessID)
		running := proc.runs()
		if proc == nil || proc.err != nil || proc.ended() {
			return map[string]any{"running": false}, nil
		}
		return map[string]any{"running": running}, s.boxes.client.End(ctx, proc.ref, proc.exec)
	}), nil
}
