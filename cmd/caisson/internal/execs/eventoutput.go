package execs

import (
	"github.com/caisson-run/caisson/api/apijson"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// newEventOutput tells a command from the given offsets on, by the events of the API.
func newEventOutput(a *cli.App, stdout, stderr int64) taskOutput {
	lines := cli.NewJSONL(a.Shown(a.Stdout))
	tell := func(e *caissonv1.ExecEvent) error {
		for _, m := range apijson.Readable(e) {
			if err := lines.Line(a.Message(m)); err != nil {
				return err
			}
		}
		return nil
	}
	return taskOutput{
		stdout: &eventStream{stdout, func(o *caissonv1.Output) error {
			return tell(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stdout{Stdout: o}})
		}},
		stderr: &eventStream{stderr, func(o *caissonv1.Output) error {
			return tell(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stderr{Stderr: o}})
		}},
		start: func(s *caissonv1.Started) { // a line that cannot be written shows with the next one
			_ = tell(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Started{Started: s}})
		},
		end: func(r *caissonv1.Result) error {
			return cli.OwnOutput(tell(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Exit{Exit: traced(a, r)}}))
		},
	}
}

// eventStream is one stream of a command.
type eventStream struct {
	offset int64 // of what was told
	tell   func(*caissonv1.Output) error
}

// Write implements io.Writer.
func (s *eventStream) Write(p []byte) (int, error) {
	o := &caissonv1.Output{Offset: s.offset, Data: p}
	s.offset += int64(len(p))
	return len(p), s.tell(o)
}

// Skip implements api.Skipper.
func (s *eventStream) Skip(n int64) error {
	o := &caissonv1.Output{Offset: s.offset, Skipped: n}
	s.offset += n
	return s.tell(o)
}
