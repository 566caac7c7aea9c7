package execs

import (
	"sync"
	"sync/atomic"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/views"
)

// objectOutput keeps what a command writes for one object, when it has ended or its
// call has. It can be asked at any time: a call may hang that is to end.
type objectOutput struct {
	exec           atomic.Pointer[caissonv1.Exec] // nil before it runs
	stdout, stderr *keptStream
}

// objectOutput keeps as much of each stream as t says; nil is the default.
func newObjectOutput(a *cli.App, t Task) taskOutput {
	n := int64(settings.DefaultOutputLimit)
	if t.Limit != nil {
		n = *t.Limit
	}
	o := &objectOutput{stdout: newKeptStream(t.stdout0, n), stderr: newKeptStream(t.stderr0, n)}
	return taskOutput{
		stdout: o.stdout, stderr: o.stderr, start: o.exec.Store, fail: o.fail,
		end: func(r *caissonv1.Result) error {
			v := o.result(r, traced(a, r))
			sayLeftOut(a, "stdout", v.StdoutSkipped)
			sayLeftOut(a, "stderr", v.StderrSkipped)
			return a.PrintJSON(v)
		},
	}
}

func (o *objectOutput) result(r *caissonv1.Result, v views.ResultView) views.RunView {
	return views.RunView{ResultView: v, OutputView: o.view(r.StdoutBytes, r.StderrBytes), Exec: o.exec.Load().GetId()}
}

// view is what was kept, of streams that end at the given offsets.
func (o *objectOutput) view(stdoutEnd, stderrEnd int64) views.OutputView {
	var v views.OutputView
	var out []byte
	out, v.StdoutSkipped = o.stdout.until(stdoutEnd)
	v.Stdout, v.StdoutEncoding = views.Encode(out)
	out, v.StderrSkipped = o.stderr.until(stderrEnd)
	v.Stderr, v.StderrEncoding = views.Encode(out)
	return v
}

// fail adds to err what is known of the command, once one runs.
func (o *objectOutput) fail(err error) error {
	exec := o.exec.Load()
	if exec == nil {
		return err
	}
	v := views.CutView{SandboxID: exec.SandboxId, Exec: exec.Id, StdoutBytes: o.stdout.reached(), StderrBytes: o.stderr.reached()}
	v.OutputView = o.view(v.StdoutBytes, v.StderrBytes)
	return &cli.CutError{Err: err, View: v}
}

// keptStream keeps a stream of a command within a bound.
type keptStream struct {
	from int64 // offset in the stream, in bytes, at which it begins here

	mu   sync.Mutex // guards what follows
	next int64      // offset of what comes next
	kept *api.Kept
}

// newKeptStream keeps at most limit bytes of what comes from an offset on.
func newKeptStream(from, limit int64) *keptStream {
	return &keptStream{from: from, next: from, kept: api.NewKept(limit)}
}

// Write implements io.Writer. It never fails.
func (s *keptStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next += int64(len(p))
	return s.kept.Write(p)
}

// Skip implements api.Skipper. It never fails.
func (s *keptStream) Skip(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next += n
	return s.kept.Skip(n)
}

// beginAt is for a stream that begins later than it was asked for.
func (s *keptStream) beginAt(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == s.from {
		s.from, s.next = offset, offset
	}
}

// reached is the offset from which on another reader would have to go on.
func (s *keptStream) reached() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// until is what was kept of the stream, which ends at an offset, and how much is left out.
func (s *keptStream) until(end int64) (kept []byte, skipped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.Bytes(end - s.from)
}
