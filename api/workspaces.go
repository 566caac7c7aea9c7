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
