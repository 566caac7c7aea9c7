package api

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// firstPause and lastPause are the waits between two attempts to reach a daemon
// that went away.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// served is how long an attempt lasts that reached a daemon: one that finds none ends at once.
const served = time.Second

// retry says whether and when a call that broke is made again.
type retry struct {
	window  time.Duration
	known   bool      // there was a daemon: that none listens now means that it restarts
	until   time.Time // zero while connected
	began   time.Time // the last attempt
	pausing time.Duration
	outages int // how often the daemon went away
}

func (c *Client) retry() *retry { return &retry{window: c.reconnect} }

// connected says that the daemon is there.
func (r *retry) connected() { r.known, r.until = true, time.Time{} }

// again waits for the next attempt. False means that there is none: err is
// final, the daemon was away for too long, or ctx has ended.
func (r *retry) again(ctx context.Context, err error) bool {
	if ctx.Err() != nil || r.window < 0 || !r.broken(err) {
		return false
	}
	now := time.Now()
	if r.until.IsZero() || now.Sub(r.began) > served { // the daemon went away anew
		r.until, r.pausing = now.Add(r.window), firstPause
		r.outages++
	}
	if now.After(r.until) {
		return false
	}
	timer := time.NewTimer(r.pausing)
	defer timer.Stop()
	r.pausing = min(2*r.pausing, lastPause)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		r.began = time.Now()
		return true
	}
}

// broken reports whether err says nothing about the command itself: the
// connection broke, or the daemon ends, starts, or gathers its sandboxes. A
// call that the daemon cancelled was not cancelled by us: that is looked at
// before.
func (r *retry) broken(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case sbxerr.APIBroken, sbxerr.Canceled:
		r.known = true
		return true
	case sbxerr.DaemonOff, sbxerr.EngineDown, sbxerr.Init:
		return r.known
	}
	return false
}

// repeat makes a call that changes nothing until it does not break.
func repeat[T any](ctx context.Context, r *retry, once func() (T, error)) (T, error) {
	for {
		answer, err := once()
		if err == nil || !r.again(ctx, err) {
			return answer, err
		}
	}
}
