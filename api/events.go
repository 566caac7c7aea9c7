package api

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Watch calls yield with each event that req asks for, the oldest first, and with follow
// goes on until ctx ends, yield returns an error, or the daemon stops. The ID of the last
// event is where another call goes on.
func (c *Client) Watch(ctx context.Context, req *caissonv1.WatchRequest, yield func(*caissonv1.Event) error) error {
	return receive(ctx, c.events().Watch, req, yield)
}

// receive calls yield with each answer of a call that streams them.
func receive[Req, Res any](ctx context.Context, call func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error), req *Req, yield func(*Res) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := call(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		if err := yield(stream.Msg()); err != nil {
			return err
		}
	}
	return stream.Err()
}
