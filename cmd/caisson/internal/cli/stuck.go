package cli

import (
	"context"
	"time"
)

// LeaveWhenStuck ends the program, with the outcome of leave, when a call goes on for
// too long after ctx has ended: one that writes to a reader who takes nothing never
// returns. What it tells may have the same reader, so that is not waited for either.
// The caller says by returned that the call did return.
func (a *App) LeaveWhenStuck(ctx context.Context, leave func() error) (returned func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-over:
		case <-time.After(a.Stuck):
			a.Exit(a.finishWithin(a.Stuck, leave()))
		}
	})
	return func() {
		stop()
		close(over)
	}
}

// finishWithin is finish, which it does not wait for longer than patience.
func (a *App) finishWithin(patience time.Duration, err error) int {
	told := make(chan int, 1)
	go func() { told <- a.finish(nil, err) }()
	select {
	case code := <-told:
		return code
	case <-time.After(patience):
		view, err := failureOf(err)
		return exitCodeOf(err, view.Error)
	}
}
