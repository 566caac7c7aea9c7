package api

import (
	"context"

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

// Traffic calls yield with each attempt of a sandbox to reach something that req asks
// for, the oldest first, and with follow goes on until the sandbox has ended.
func (c *Client) Traffic(ctx context.Context, req *caissonv1.TrafficRequest, yield func(*caissonv1.TrafficResponse) error) error {
	return receive(ctx, c.network().Traffic, req, yield)
}
