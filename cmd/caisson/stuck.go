package main

import (
	"context"
	"errors"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

var errStuck = errors.New("what is written to takes nothing")

// untilStuck is run, or errStuck when it goes on for so long after ctx: one that writes
// to a reader who takes nothing never ends.
func untilStuck(ctx context.Context, after time.Duration, run func() (*caissonv1.Result, error)) (*caissonv1.Result, error) {
	type outcome struct {
		result *caissonv1.Result
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		result, err := run()
		ended <- outcome{result, err}
	}()
	var stuck <-chan time.Time // nil until ctx ends
	over := ctx.Done()
	for {
		select {
		case o := <-ended:
			return o.result, o.err
		case <-over:
			over, stuck = nil, time.After(after)
		case <-stuck:
			return nil, errStuck
		}
	}
}
