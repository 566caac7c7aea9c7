package server

import (
	"context"
	"fmt"
	"math"
	"slices"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime/spend"
)

func (n network) Usage(ctx context.Context, req *connect.Request[caissonv1.UsageRequest]) (*connect.Response[caissonv1.UsageResponse], error) {
	list, err := n.spending.List(ctx)
	if err != nil {
		return nil, fail(err)
	}
	list = slices.DeleteFunc(list, func(r spend.Row) bool {
		return req.Msg.Session != "" && req.Msg.Session != r.About.Session || req.Msg.Profile != "" && req.Msg.Profile != r.About.Profile
	})
	list, next, err := page("usages", list, func(r spend.Row) string {
		a := r.Account
		return fmt.Sprintf("%s\x00%s\x00%s\x00%d", a.Scope, a.Of, a.Route, a.Hour)
	}, req.Msg)
	return reply(&caissonv1.UsageResponse{Usages: each(list, usagePB), Next: next}, err)
}

func usagePB(r spend.Row) *caissonv1.RouteUsage {
	count := func(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
	a, t := r.Amount, r.Amount.Tokens
	u := &caissonv1.RouteUsage{
		Scope: string(r.Account.Scope), Route: r.Account.Route, Session: r.About.Session, Profile: r.About.Profile, Owner: r.About.Owner, UpdatedAt: timestamp(r.Updated),
		Requests: count(a.Requests), Bytes: count(a.Bytes), EstimatedRequests: count(a.Estimated), Cost: float64(a.Micros) / spend.Micro,
		InputTokens: count(t.Input), CachedTokens: count(t.Cached), StoredTokens: count(t.Stored), OutputTokens: count(t.Output), ReasoningTokens: count(t.Reasoning),
	}
	switch r.Account.Scope {
	case spend.Sandbox:
		u.SandboxId, u.SandboxName = r.Account.Of, r.About.Name
	case spend.Hour:
		u.Session = ""
	}
	return u
}
