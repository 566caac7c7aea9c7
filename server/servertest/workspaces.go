package servertest

import (
	"context"

	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/workspaces"
)

// Diff implements server.Workspaces.
func (f *Fake) Diff(ctx context.Context, ref string) ([]changes.Change, bool, error) {
	_, err := f.Inspect(ctx, ref)
	return f.Changes, false, err
}

// Apply implements server.Workspaces.
func (f *Fake) Apply(ctx context.Context, ref string, r workspaces.Request) (workspaces.Result, error) {
	_, err := f.Inspect(ctx, ref)
	f.Applied = append(f.Applied, r)
	return f.ApplyResult, err
}
