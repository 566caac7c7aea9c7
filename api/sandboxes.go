package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Create makes a sandbox that lives until it is removed or its time is over.
// With req.Ensure it returns the live one of that name; with a key, a repeated
// request returns the sandbox of the first.
func (c *Client) Create(ctx context.Context, req *caissonv1.CreateRequest) (*caissonv1.Sandbox, error) {
	return call(ctx, c.sandboxes().Create, req)
}

// List returns the sandboxes there are, oldest first.
func (c *Client) List(ctx context.Context, req *caissonv1.ListRequest) (*caissonv1.ListResponse, error) {
	return whole(ctx, c.sandboxes().List, req)
}

// Inspect returns all that is known of one sandbox.
func (c *Client) Inspect(ctx context.Context, req *caissonv1.InspectRequest) (*caissonv1.InspectResponse, error) {
	return call(ctx, c.sandboxes().Inspect, req)
}

// Stats calls yield with the use of the selected sandboxes, at once and then each second,
// until ctx ends, yield returns an error, or all of req.Refs have ended. With
// req.NoStream it does so once. It goes on if the daemon restarts.
func (c *Client) Stats(ctx context.Context, req *caissonv1.StatsRequest, yield func(*caissonv1.StatsResponse) error) error {
	nothing := func() error { return nil } // each answer stands for itself
	return resumed(ctx, c.retry(), c.sandboxes().Stats, req, nothing, yield)
}

// History returns the use of a sandbox over time.
func (c *Client) History(ctx context.Context, req *caissonv1.HistoryRequest) (*caissonv1.HistoryResponse, error) {
	return call(ctx, c.sandboxes().History, req)
}

// AttachWorkspace gives a live sandbox a directory of the host as its workspace.
func (c *Client) AttachWorkspace(ctx context.Context, req *caissonv1.AttachWorkspaceRequest) (*caissonv1.Sandbox, error) {
	return call(ctx, c.sandboxes().AttachWorkspace, req)
}

// Update changes limits, times and labels of a live sandbox.
func (c *Client) Update(ctx context.Context, req *caissonv1.UpdateRequest) (*caissonv1.Sandbox, error) {
	return call(ctx, c.sandboxes().Update, req)
}

// Pause freezes all processes of a sandbox.
func (c *Client) Pause(ctx context.Context, ref string) (*caissonv1.Sandbox, error) {
	return call(ctx, c.sandboxes().Pause, &caissonv1.PauseRequest{Ref: ref})
}

// Clean ends every process of a running sandbox and empties its /tmp. Other files stay.
func (c *Client) Clean(ctx context.Context, ref string) (*caissonv1.CleanResponse, error) {
	return call(ctx, c.sandboxes().Clean, &caissonv1.CleanRequest{Ref: ref})
}

// Restart replaces a sandbox by a new one under the same name, made by the request of the
// old one. Its files and commands go.
func (c *Client) Restart(ctx context.Context, ref string) (*caissonv1.Sandbox, error) {
	return call(ctx, c.sandboxes().Restart, &caissonv1.RestartRequest{Ref: ref})
}

// Resume lets the processes of a paused sandbox go on.
func (c *Client) Resume(ctx context.Context, ref string) (*caissonv1.Sandbox, error) {
	return call(ctx, c.sandboxes().Resume, &caissonv1.ResumeRequest{Ref: ref})
}

// Stop ends all processes of a sandbox: TERM, then KILL after grace. Nil is the
// daemon's grace. What its commands wrote stays until Remove.
func (c *Client) Stop(ctx context.Context, ref string, grace *time.Duration) (*caissonv1.Sandbox, error) {
	req := &caissonv1.StopRequest{Ref: ref}
	if grace != nil {
		req.Grace = durationpb.New(*grace)
	}
	return call(ctx, c.sandboxes().Stop, req)
}

// Wait returns when a sandbox has ended. It waits again where its connection
// breaks.
func (c *Client) Wait(ctx context.Context, ref string) (*caissonv1.Sandbox, error) {
	return repeat(ctx, c.retry(), func() (*caissonv1.Sandbox, error) {
		return call(ctx, c.sandboxes().Wait, &caissonv1.WaitRequest{Ref: ref})
	})
}

// Remove ends one sandbox and removes all of it.
func (c *Client) Remove(ctx context.Context, req *caissonv1.RemoveRequest) (*caissonv1.RemoveResponse, error) {
	return call(ctx, c.sandboxes().Remove, req)
}

// Cleanup removes what no live sandbox owns.
func (c *Client) Cleanup(ctx context.Context, req *caissonv1.CleanupRequest) (*caissonv1.CleanupResponse, error) {
	return call(ctx, c.sandboxes().Cleanup, req)
}

// Spec returns what Run would build, and builds nothing.
func (c *Client) Spec(ctx context.Context, req *caissonv1.SpecRequest) (*caissonv1.SpecResponse, error) {
	return call(ctx, c.sandboxes().Spec, req)
}
