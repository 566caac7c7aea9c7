package server

import (
	"google.golang.org/protobuf/encoding/protowire"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
)

// outputChunk is the most output in one message, in bytes. A message is copied
// before it is sent: this, and what the runtime reads ahead, is what a caller
// that does not read costs.
const outputChunk = 256 << 10

// output makes the messages of one stream of a command.
type output[Res any] struct {
	bytes   func([]byte) *Res
	skipped func(int64) *Res
	fields  fields
}

// fields are the numbers of an output's fields in its message, for a lane.
type fields struct{ bytes, skipped protowire.Number }

// Those of RunResponse and StreamExecResponse are the same.
var (
	stdoutFields = fields{bytes: 2, skipped: 6}
	stderrFields = fields{bytes: 3, skipped: 7}
)

// writer sends what is written to it as it comes, in chunks. The command's
// output gathers while a chunk is on its way, so a slow caller gets fewer and
// larger chunks.
type writer[Res any] struct {
	output[Res]
	send sendOutput[Res]
}

// sendOutput sends m, or does inLane where the output has a lane.
type sendOutput[Res any] func(m *Res, inLane func(*lane) error) error

var _ runtime.Skipper = writer[caissonv1.RunResponse]{}

// Write implements io.Writer.
func (w writer[Res]) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		end := min(done+outputChunk, len(p))
		chunk := p[done:end]
		if err := w.send(w.bytes(chunk), func(l *lane) error { return l.bytes(w.fields.bytes, chunk) }); err != nil {
			return done, err
		}
		done = end
	}
	return len(p), nil
}

// Skip implements runtime.Skipper.
func (w writer[Res]) Skip(n int64) error {
	return w.send(w.skipped(n), func(l *lane) error { return l.number(w.fields.skipped, n) })
}

var (
	stdoutOfRun = output[caissonv1.RunResponse]{
		func(p []byte) *caissonv1.RunResponse {
			return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_Stdout{Stdout: p}}
		},
		func(n int64) *caissonv1.RunResponse {
			return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_StdoutSkipped{StdoutSkipped: n}}
		},
		stdoutFields,
	}
	stderrOfRun = output[caissonv1.RunResponse]{
		func(p []byte) *caissonv1.RunResponse {
			return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_Stderr{Stderr: p}}
		},
		func(n int64) *caissonv1.RunResponse {
			return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_StderrSkipped{StderrSkipped: n}}
		},
		stderrFields,
	}
	stdoutOfExec = output[caissonv1.StreamExecResponse]{
		func(p []byte) *caissonv1.StreamExecResponse {
			return &caissonv1.StreamExecResponse{Kind: &caissonv1.StreamExecResponse_Stdout{Stdout: p}}
		},
		func(n int64) *caissonv1.StreamExecResponse {
			return &caissonv1.StreamExecResponse{Kind: &caissonv1.StreamExecResponse_StdoutSkipped{StdoutSkipped: n}}
		},
		stdoutFields,
	}
	stderrOfExec = output[caissonv1.StreamExecResponse]{
		func(p []byte) *caissonv1.StreamExecResponse {
			return &caissonv1.StreamExecResponse{Kind: &caissonv1.StreamExecResponse_Stderr{Stderr: p}}
		},
		func(n int64) *caissonv1.StreamExecResponse {
			return &caissonv1.StreamExecResponse{Kind: &caissonv1.StreamExecResponse_StderrSkipped{StderrSkipped: n}}
		},
		stderrFields,
	}
	stdoutOfLogs = output[caissonv1.LogsResponse]{
		func(p []byte) *caissonv1.LogsResponse {
			return &caissonv1.LogsResponse{Kind: &caissonv1.LogsResponse_Stdout{Stdout: p}}
		},
		func(n int64) *caissonv1.LogsResponse {
			return &caissonv1.LogsResponse{Kind: &caissonv1.LogsResponse_StdoutSkipped{StdoutSkipped: n}}
		},
		fields{bytes: 1, skipped: 3},
	}
	stderrOfLogs = output[caissonv1.LogsResponse]{
		func(p []byte) *caissonv1.LogsResponse {
			return &caissonv1.LogsResponse{Kind: &caissonv1.LogsResponse_Stderr{Stderr: p}}
		},
		func(n int64) *caissonv1.LogsResponse {
			return &caissonv1.LogsResponse{Kind: &caissonv1.LogsResponse_StderrSkipped{StderrSkipped: n}}
		},
		fields{bytes: 2, skipped: 4},
	}
)
