package api

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Run makes a sandbox for one command, executes it in the foreground and
// returns how it ended. The sandbox ends with ctx, and with the connection: a
// run that breaks is not continued. An error of the caller's own writers is
// wrapped under SBX-804 and ends the sandbox too.
func (c *Client) Run(ctx context.Context, spec *caissonv1.RunSpec, rio IO) (*caissonv1.Result, error) {
	spec = proto.CloneOf(spec)
	spec.Detach, spec.Exec = false, withStdin(spec.Exec, rio.Stdin != nil)
	return c.foreground(rio).run(ctx, func(ctx context.Context) (*events, error) { return c.openRun(ctx, spec) })
}

// RunDetached executes spec in a sandbox that outlives the call.
func (c *Client) RunDetached(ctx context.Context, spec *caissonv1.RunSpec) (*caissonv1.Started, error) {
	spec = proto.CloneOf(spec)
	spec.Detach = true
	last, err := only(c.openRun(ctx, spec))
	return last.GetStarted(), err
}

func (c *Client) openRun(ctx context.Context, spec *caissonv1.RunSpec) (*events, error) {
	return c.sandboxes().Run(ctx, connect.NewRequest(&caissonv1.RunRequest{Spec: spec}))
}

// only reads a stream of one event.
func only(stream *events, err error) (*caissonv1.ExecEvent, error) {
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var event *caissonv1.ExecEvent
	for stream.Receive() { // to the end: a daemon that fails after all says so
		event = stream.Msg()
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if event == nil {
		return nil, errNoResult
	}
	return event, nil
}

// withStdin is spec with or without an input.
func withStdin(spec *caissonv1.ExecSpec, stdin bool) *caissonv1.ExecSpec {
	if spec.GetStdin() == stdin && spec != nil {
		return spec
	}
	if spec == nil {
		return &caissonv1.ExecSpec{Stdin: stdin}
	}
	spec = proto.CloneOf(spec)
	spec.Stdin = stdin
	return spec
}
