package servertest

import (
	"context"
	"io"

	"github.com/caisson-run/caisson/runtime"
)

// Input is the input of a fake command: Read returns the bytes that Send is given, each
// once. Send returns when they are read.
type Input struct {
	r    *io.PipeReader
	w    *io.PipeWriter
	turn chan struct{}
	had  int64
}

// NewInput returns an input that is open.
func NewInput() *Input {
	r, w := io.Pipe()
	return &Input{r: r, w: w, turn: make(chan struct{}, 1)}
}

// Read implements io.Reader.
func (i *Input) Read(p []byte) (int, error) { return i.r.Read(p) }

// Close is the command's end of its input.
func (i *Input) Close() error { return i.r.Close() }

// Send is for Fake.OnInput.
func (i *Input) Send(_ context.Context, _, _ string, req runtime.InputRequest) (runtime.InputState, error) {
	i.turn <- struct{}{}
	defer func() { <-i.turn }()
	data := req.Data
	if req.Offset != nil {
		data = data[min(i.had-*req.Offset, int64(len(data))):]
	}
	n, err := i.w.Write(data)
	i.had += int64(n)
	if req.Close || err != nil {
		_ = i.w.Close() // a pipe's never fails
	}
	return runtime.InputState{Offset: i.had, Closed: req.Close || err != nil}, nil
}
