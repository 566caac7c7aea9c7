package main

import (
	"context"
	"time"
)

// leaveWhenStuck ends the program, with the outcome of leave, when a call goes on for
// too long after ctx has ended: one that writes to a reader who takes nothing never
// returns. The caller says by returned that it did.
func (a *app) leaveWhenStuck(ctx context.Context, leave func() error) (returned func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-over:
		case <-time.After(a.stuck):
			a.exit(a.finish(nil, leave()))
		}
	})
	return func() {
		stop()
		close(over)
	}
}
