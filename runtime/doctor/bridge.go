package doctor

import (
	"context"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
)

// examineBridge says nothing where the operator does not offer the mode.
func examineBridge(_ context.Context, h Host) []runtime.Check {
	const name = "network mode bridge"
	if h.Bridge.Offered() != nil {
		return nil
	}
	if err := h.Bridge.Ready(); err != nil {
		return []runtime.Check{{Name: name, Status: Warn, Detail: err.Error(), Code: string(sbxerr.Of(err)), Remedy: sbxerr.RemedyOf(err)}}
	}
	return ok(name, "the host's uplink forwards")
}
