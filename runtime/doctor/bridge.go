package doctor

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
)

// examineBridge says nothing where the operator does not offer the mode. It only reports
// differences: the next sandbox of the mode mends them.
func examineBridge(_ context.Context, h Host) []runtime.Check {
	const name = "network mode bridge"
	if h.Bridge.Offered() != nil {
		return nil
	}
	if err := h.Bridge.Ready(); err != nil {
		return []runtime.Check{{Name: name, Status: Warn, Detail: err.Error(), Code: string(sbxerr.Of(err)), Remedy: sbxerr.RemedyOf(err)}}
	}
	found, err := h.Bridge.Examine()
	switch {
	case err != nil:
		return []runtime.Check{{Name: name, Status: Warn, Detail: err.Error(), Code: string(sbxerr.Of(err)), Remedy: sbxerr.RemedyOf(err)}}
	case len(found) > 0:
		return []runtime.Check{{
			Name: name, Status: Warn, Code: string(sbxerr.Posture), Detail: fmt.Sprintf("somebody changed what it needs on the host: %v", found),
			Remedy: "make a sandbox in this mode, or start the daemon again: either mends it",
		}}
	}
	return ok(name, "the host's uplink forwards")
}
