package execs

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/apijson"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// objectOutput keeps what a command writes for one object, when it has ended or its
// call has. It can be asked at any time: a call may hang that is to end.
type objectOutput struct {
	app            *cli.App
	exec           atomic.Pointer[caissonv1.Exec] // nil before it runs
	stdout, stderr *keptStream
}

// objectOutput keeps as much of each stream as t says; nil is the default.
func newObjectOutput(a *cli.App, t Task) taskOutput {
	n := int64(settings.DefaultOutputLimit)
	if t.Limit != nil {
		n = *t.Limit
	}
	o := &objectOutput{app: a, stdout: newKeptStream(t.stdout0, n), stderr: newKeptStream(t.stderr0, n)}
	return taskOutput{
		stdout: o.stdout, stderr: o.stderr, start: func(s *caissonv1.Started) { o.exec.Store(s.GetExec()) }, fail: o.fail,
		end: func(r *caissonv1.Result) error {
			f := o.finished(r.StdoutBytes, r.StderrBytes)
			f.Result = traced(a, r)
			sayLeftOut(a, "stdout", f.StdoutSkipped)
			sayLeftOut(a, "stderr", f.StderrSkipped)
			return a.PrintJSON(f)
		},
	}
}

// finished is what was kept, of streams that end at the given offsets.
func (o *objectOutput) finished(stdoutEnd, stderrEnd int64) *caissonv1.Finished {
	f := &caissonv1.Finished{Id: o.exec.Load().GetId()}
	f.Stdout, f.StdoutSkipped = o.stdout.until(stdoutEnd)
	f.Stderr, f.StderrSkipped = o.stderr.until(stderrEnd)
	f.StdoutText, f.Stdout = apijson.Text(f.Stdout)
	f.StderrText, f.Stderr = apijson.Text(f.Stderr)
	return f
}

// fail adds to err what is known of the command, once one runs.
func (o *objectOutput) fail(err error) error {
	exec := o.exec.Load()
	if exec == nil {
		return err
	}
	exec = proto.CloneOf(exec)
	exec.StdoutBytes, exec.StderrBytes = o.stdout.reached(), o.stderr.reached()
	output := o.finished(exec.StdoutBytes, exec.StderrBytes)
	return &cli.CutError{Err: err, Cut: cli.Cut{Exec: o.app.Message(exec), Output: o.app.Message(output)}}
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
