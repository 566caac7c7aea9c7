package api

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// streaming is a call that streams its answers.
type streaming[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error)

// resumed calls yield with the answers of a stream. Where the daemon went away it makes
// the call again, with what req then is. broke is called first where a stream had begun:
// answers between the two may be missing.
func resumed[Req, Res any](ctx context.Context, r *retry, call streaming[Req, Res], req *Req, broke func() error, yield func(*Res) error) error {
	told := 0 // of so many outages
	for {
		begun := time.Now()
		var refused error
		err := receive(ctx, call, req, func(m *Res) error {
			r.connected()
			refused = yield(m)
			return refused
		})
		if err == nil || refused != nil {
			return err
		}
		if time.Since(begun) > r.window { // a stream may be silent for long
			r.connected()
		}
		if !r.again(ctx, err) {
			return err
		}
		// An attempt that met the daemon's end, or one that had not begun, breaks too.
		if told != r.outages && (errors.Is(err, sbxerr.APIBroken) || errors.Is(err, sbxerr.Canceled)) {
			told = r.outages
			if err := broke(); err != nil {
				return err
			}
		}
	}
}

// receive calls yield with each answer of one call.
func receive[Req, Res any](ctx context.Context, call streaming[Req, Res], req *Req, yield func(*Res) error) error {
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
