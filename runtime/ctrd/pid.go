package ctrd

import (
	"context"

	"github.com/caisson-run/caisson/sbxerr"
)

// PID returns the ID on the host of the first process of id, which must run or
// be paused. It is what the shim says: whoever goes on with the process checks
// that it is the one.
func (e *Engine) PID(ctx context.Context, id string) (int, error) {
	s, err := e.State(ctx, id)
	if err != nil {
		return 0, err
	}
	if (s.Status != StatusRunning && s.Status != StatusOther) || s.PID <= 0 {
		return 0, sbxerr.New(sbxerr.State, "ctrd.pid", "container %q is %s", id, s.Status)
	}
	return s.PID, nil
}
