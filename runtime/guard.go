package runtime

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// beside does a part of a call in a goroutine of its own. A panic of ours there
// ends the call, and not the daemon: so it is in the goroutine of the call too.
func (h *host) beside(end context.CancelCauseFunc, part func()) {
	defer func() {
		if value := recover(); value != nil {
			h.log.Error("part of a call panicked", "panic", value, "stack", string(debug.Stack()))
			end(errPanicked)
		}
	}()
	part()
}

var errPanicked = sbxerr.New(sbxerr.Internal, "runtime.beside", "a part of the call panicked")

func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return sbxerr.Wrap(sbxerr.Canceled, "runtime.wait", context.Cause(ctx))
	}
}

// interrupted is err of a creation that was to end for cause, if it was: that is what
// the caller wants to know, not which call was in the way.
func interrupted(cause, err error) error {
	if cause == nil {
		return err
	}
	if !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	code := sbxerr.Of(cause)
	if code == sbxerr.Unknown {
		code = sbxerr.Canceled
	}
	return sbxerr.Wrap(code, "runtime.create", err)
}
