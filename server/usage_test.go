package server_test

import (
	"testing"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/route/tokens"
	"github.com/caisson-run/caisson/runtime/spend"
	"github.com/caisson-run/caisson/server/servertest"
)

// What requests by routes took is told by scope, and for one session or profile.
func TestUsage(t *testing.T) {
	bill := budget.Bill{Sandbox: "box", Session: "0/work", Profile: "0/agent"}
	about := spend.About{Sandbox: "box", Name: "one", Owner: 7, Session: "work", Profile: "agent", Bill: bill}
	amount := budget.Amount{Requests: 2, Bytes: 30, Tokens: tokens.Count{Input: 100, Cached: 40, Stored: 3, Output: 10, Reasoning: 4}, Micros: 1_500_000, Estimated: 1}
	at := time.Unix(1_800_000_000, 0)
	f := &servertest.Fake{}
	for _, s := range budget.Scopes {
		f.Spent = append(f.Spent, spend.Row{Account: bill.Account(s, "gpt", at), Amount: amount, About: about, Updated: at})
	}
	client := dial(t, f)
	got, err := client.Usage(t.Context(), &caissonv1.UsageRequest{})
	if err != nil || len(got.Usages) != 3 || got.Usages[0].Scope != "hour" || got.Usages[0].Session != "" || got.Usages[2].Scope != "session" || got.Usages[2].SandboxId != "" {
		t.Fatalf("%v, %v", got, err)
	}
	u := got.Usages[1]
	if u.SandboxId != "box" || u.SandboxName != "one" || u.Session != "work" || u.Profile != "agent" || u.Owner != 7 || u.Route != "gpt" || u.Requests != 2 || u.Bytes != 30 ||
		u.InputTokens != 100 || u.CachedTokens != 40 || u.StoredTokens != 3 || u.OutputTokens != 10 || u.ReasoningTokens != 4 || u.Cost != 1.5 || u.EstimatedRequests != 1 || !u.UpdatedAt.AsTime().Equal(at) {
		t.Errorf("%v", u)
	}
	for want, r := range map[int]*caissonv1.UsageRequest{0: {Session: "other"}, 3: {Session: "work", Profile: "agent"}, 1: {Limit: 1}} {
		if got, err := client.Usage(t.Context(), r); err != nil || len(got.Usages) != want {
			t.Errorf("%v: %v, %v", r, got, err)
		}
	}
}
