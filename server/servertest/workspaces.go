package servertest

import (
	"context"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/workspaces"
)

// workspaceFake implements server.Workspaces.
type workspaceFake struct{ *Fake }

func (f workspaceFake) Diff(ctx context.Context, ref string) ([]changes.Change, bool, error) {
	_, err := f.Inspect(ctx, ref)
	return f.Changes, false, err
}

func (f workspaceFake) Patch(ctx context.Context, ref string, control bool) (workspaces.Patch, error) {
	_, err := f.Inspect(ctx, ref)
	f.PatchControl = append(f.PatchControl, control)
	return workspaces.Patch{Changes: f.Changes, Patch: f.OfChanges}, err
}

func (f workspaceFake) Apply(ctx context.Context, ref string, r workspaces.Request) (workspaces.Result, error) {
	_, err := f.Inspect(ctx, ref)
	f.Applied = append(f.Applied, r)
	return f.ApplyResult, err
}

func (f workspaceFake) List(context.Context) ([]workspaces.Changeset, error) {
	return f.Changesets, nil
}

func (f workspaceFake) Has(id string) bool {
	return slices.ContainsFunc(f.Changesets, func(c workspaces.Changeset) bool { return c.ID == id })
}

func (f workspaceFake) Discard(_ context.Context, ref string) error {
	if !slices.ContainsFunc(f.Changesets, func(c workspaces.Changeset) bool { return c.ID == ref }) {
		return sbxerr.New(sbxerr.ChangesetNotFound, "fake.find", "no changeset %q", ref)
	}
	return nil
}
