package servertest

import (
	"context"

	"github.com/caisson-run/caisson/runtime/changes"
)

// Diff implements server.Workspaces.
func (f *Fake) Diff(ctx context.Context, ref string) ([]changes.Change, bool, error) {
	_, err := f.Inspect(ctx, ref)
	return f.Changes, false, err
}
