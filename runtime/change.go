package runtime

import (
	"context"
	"errors"
	"slices"

	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/plan"
)

// change is what a live sandbox becomes: by Update, or as one that is taken from a pool.
type change struct {
	plan *plan.Sandbox // for which it is taken from a pool; nil: Update
	from record
	to   record // stages add what they find out
}

// updateStages makes s what c says. Where one stage fails, those before it are taken back.
// s.changing is held.
func (h *host) updateStages(ctx context.Context, s *sandbox, stages []stage, c *change) error {
	var undo []func() error
	for _, st := range stages {
		if st.update == nil {
			continue
		}
		back, err := st.update(ctx, s, c)
		if back != nil {
			undo = append(undo, back)
		}
		if err = errors.Join(err, failpoint.At("update/"+st.name)); err == nil {
			continue
		}
		for _, back := range slices.Backward(undo) {
			err = errors.Join(err, back())
		}
		return err
	}
	return nil
}
