package api

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// CheckPolicy says what a policy makes of a destination, without trying it.
func (c *Client) CheckPolicy(ctx context.Context, req *caissonv1.CheckPolicyRequest) (*caissonv1.CheckPolicyResponse, error) {
	return call(ctx, c.network().CheckPolicy, req)
}

// ExplainPolicy says all that a policy does.
func (c *Client) ExplainPolicy(ctx context.Context, req *caissonv1.ExplainPolicyRequest) (*caissonv1.ExplainPolicyResponse, error) {
	return call(ctx, c.network().ExplainPolicy, req)
}

// LearnPolicy returns the rules of the smallest policy that would have allowed
// what a sandbox reached, and warnings of what they may not cover.
func (c *Client) LearnPolicy(ctx context.Context, ref string) (*caissonv1.LearnPolicyResponse, error) {
	return call(ctx, c.network().LearnPolicy, &caissonv1.LearnPolicyRequest{Ref: ref})
}

// Usage returns what requests by routes took.
func (c *Client) Usage(ctx context.Context, req *caissonv1.UsageRequest) (*caissonv1.UsageResponse, error) {
	return whole(ctx, c.network().Usage, req)
}

// Traffic calls yield with each attempt of a sandbox to reach something that req asks
// for, the oldest first, and with follow goes on until the sandbox has ended. If the daemon
// restarts, no attempt is missed or comes twice; one of the kind "gap" says that those
// under way then may have no entry.
func (c *Client) Traffic(ctx context.Context, req *caissonv1.TrafficRequest, yield func(*caissonv1.TrafficResponse) error) error {
	req = proto.CloneOf(req)
	gap := func() error {
		return yield(&caissonv1.TrafficResponse{
			Kind: "gap", Time: timestamppb.Now(),
			Reason: "the connection to the daemon broke: attempts that were under way may have no entry",
		})
	}
	return resumed(ctx, c.retry(), c.network().Traffic, req, gap, func(t *caissonv1.TrafficResponse) error {
		req.Since = cmp.Or(t.Cursor, req.Since)
		return yield(t)
	})
}
