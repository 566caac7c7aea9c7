package runtime

import (
	"context"
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
