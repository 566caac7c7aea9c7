package api

import (
	"context"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Diff tells what differs between the copy-on-write workspace of a sandbox and the directory of
// the host.
func (c *Client) Diff(ctx context.Context, req *caissonv1.DiffRequest) (*caissonv1.DiffResponse, error) {
	return call(ctx, c.workspaces().Diff, req)
}

// Apply writes the changes of a copy-on-write workspace into the directory of the host.
func (c *Client) Apply(ctx context.Context, req *caissonv1.ApplyRequest) (*caissonv1.ApplyResponse, error) {
	return call(ctx, c.workspaces().Apply, req)
}

// ListChangesets returns the caller's changesets, and to root those of all users.
func (c *Client) ListChangesets(ctx context.Context, req *caissonv1.ListChangesetsRequest) (*caissonv1.ListChangesetsResponse, error) {
	return whole(ctx, c.workspaces().ListChangesets, req)
}

// DiscardChangeset removes a changeset.
func (c *Client) DiscardChangeset(ctx context.Context, req *caissonv1.DiscardChangesetRequest) (*caissonv1.DiscardChangesetResponse, error) {
	return call(ctx, c.workspaces().DiscardChangeset, req)
}
