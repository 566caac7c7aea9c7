package budget_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/route/tokens"
)

var (
	bill = budget.Bill{Sandbox: "box", Session: "0/work", Profile: "0/agent"}
	noon = time.Unix(1_800_000_000, 0)
)

func took(output uint64) budget.Amount {
	return budget.Amount{Requests: 1, Tokens: tokens.Count{Output: output}}
}

// begin begins a request that must be admitted.
func begin(t *testing.T, l *budget.Ledger, b budget.Bill, limits map[budget.Scope]budget.Limit, at time.Time) *budget.Request {
	t.Helper()
	r, err := l.Begin(b, "models", limits, at)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func refused(t *testing.T, l *budget.Ledger, b budget.Bill, limits map[budget.Scope]budget.Limit, at time.Time, want string) {
	t.Helper()
	_, err := l.Begin(b, "models", limits, at)
	var spent *budget.Spent
	if !errors.As(err, &spent) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		limit budget.Limit
		took  budget.Amount
		want  string
	}{
		"requests": {budget.Limit{Requests: 1}, took(0), "for requests is used up (1 of 1 of this sandbox)"},
		"tokens":   {budget.Limit{Tokens: 100}, took(120), "for tokens is used up (120 of 100 of this sandbox)"},
		"cost":     {budget.Limit{Micros: 2 * budget.Micro}, budget.Amount{Requests: 1, Micros: 2_500_000}, "for cost is used up (2.50 of 2.00 of this sandbox)"},
	} {
		l := new(budget.Ledger)
		limits := map[budget.Scope]budget.Limit{budget.Sandbox: tt.limit}
		begin(t, l, bill, limits, noon).End(tt.took)
		refused(t, l, bill, limits, noon, "the budget of route models "+tt.want)
		begin(t, l, budget.Bill{Sandbox: "other"}, limits, noon) // has one of its own
		if _, err := l.Begin(bill, "other", limits, noon); err != nil {
			t.Errorf("%s: another route: %v", name, err)
		}
	}
}

// An answer that is too long is cut.
func TestBytes(t *testing.T) {
	l := new(budget.Ledger)
	limits := map[budget.Scope]budget.Limit{budget.Session: {Bytes: 100}, budget.Hour: {Bytes: 1000}}
	r := begin(t, l, bill, limits, noon)
	if err := errors.Join(r.Pass(60), r.Pass(40)); err != nil {
		t.Error(err)
	}
	if err := r.Pass(1); err == nil || !strings.Contains(err.Error(), "bytes is used up (101 of 100 of this session)") {
		t.Error(err)
	}
	r.End(took(1))
	refused(t, l, bill, limits, noon, "101 of 100")
}

func TestScopes(t *testing.T) {
	l := new(budget.Ledger)
	limits := map[budget.Scope]budget.Limit{budget.Session: {Tokens: 100}, budget.Hour: {Tokens: 150}}
	begin(t, l, bill, limits, noon).End(took(100))
	sibling := bill
	sibling.Sandbox = "sibling"
	refused(t, l, sibling, limits, noon, "of this session")
	stranger := budget.Bill{Sandbox: "x", Session: "0/play", Profile: bill.Profile}
	begin(t, l, stranger, limits, noon).End(took(60))
	refused(t, l, budget.Bill{Sandbox: "y", Session: "0/third", Profile: bill.Profile}, limits, noon, "160 of 150 this hour")
	begin(t, l, budget.Bill{Sandbox: "y", Session: "0/third", Profile: bill.Profile}, limits, noon.Add(time.Hour)).End(took(1))
	begin(t, l, budget.Bill{Sandbox: "z", Session: "0/third", Profile: "1/agent"}, limits, noon)
}

// A sandbox of no session has the budget of a session alone, and pays once.
func TestWithoutSession(t *testing.T) {
	l := new(budget.Ledger)
	alone := budget.Bill{Sandbox: "box", Profile: "0/agent"}
	limits := map[budget.Scope]budget.Limit{budget.Sandbox: {Tokens: 1000}, budget.Session: {Tokens: 100, Bytes: 50}}
	r := begin(t, l, alone, limits, noon)
	if r.Pass(60) == nil {
		t.Error("the limit of the session is forgotten")
	}
	r.End(took(70))
	delete(limits, budget.Session)
	begin(t, l, alone, limits, noon).End(took(0))
	if list := l.Changed(10); len(list) != 1 || list[0].Amount.Requests != 2 || list[0].Amount.Bytes != 60 || list[0].Amount.Tokens.Output != 70 {
		t.Errorf("%+v", list)
	}
}

// Requests that run at once cannot pass a budget by more than what one takes.
func TestUnderWay(t *testing.T) {
	l := new(budget.Ledger)
	limits := map[budget.Scope]budget.Limit{budget.Sandbox: {Tokens: 10_000, Requests: 50}}
	first := begin(t, l, bill, limits, noon)
	second := begin(t, l, bill, limits, noon)
	third := begin(t, l, bill, limits, noon)
	refused(t, l, bill, limits, noon, "for tokens of this sandbox (10000) is held by the 3 requests under way")
	for _, r := range []*budget.Request{first, second, third} {
		r.End(took(100))
	}
	var many []*budget.Request
	for {
		r, err := l.Begin(bill, "models", limits, noon)
		if err != nil {
			break
		}
		many = append(many, r)
	}
	if len(many) != 47 {
		t.Errorf("%d at once, of which each takes 100 tokens", len(many))
	}
}

// A budget outlives the process that counts.
func TestRestore(t *testing.T) {
	l := new(budget.Ledger)
	limits := map[budget.Scope]budget.Limit{budget.Sandbox: {Tokens: 100}, budget.Hour: {Requests: 9}}
	r := begin(t, l, bill, limits, noon)
	if len(l.Changed(10)) != 0 {
		t.Error("a request that runs changed something")
	}
	r.End(took(100))
	list := append(l.Changed(1), l.Changed(10)...)
	if len(list) != 2 || len(l.Changed(10)) != 0 {
		t.Errorf("%+v", list)
	}
	next := new(budget.Ledger)
	next.Restore(list)
	refused(t, next, bill, limits, noon, "100 of 100")
	next.Restore([]budget.Entry{{Account: list[0].Account}, {Account: list[1].Account}}) // what is older
	refused(t, next, bill, limits, noon, "100 of 100")
	next.Keep([]budget.Bill{bill}, noon)
	refused(t, next, bill, limits, noon, "100 of 100")
	next.Keep(nil, noon)
	begin(t, next, bill, limits, noon)
}

func TestCost(t *testing.T) {
	p := budget.Prices{"gpt-*": {Input: 1, Output: 2}, "gpt-4*": {Input: 10, Cached: 5, Stored: 12, Output: 40}, "gpt-4o": {Input: 3, Output: 4}}
	c := tokens.Count{Input: 1000, Cached: 400, Stored: 100, Output: 10, Reasoning: 5}
	for model, want := range map[string]uint64{"gpt-3": 520, "gpt-4-x": 5000 + 2000 + 1200 + 400, "gpt-4o": 1540, "other": 8600, "": 8600} {
		if got := p.Cost(model, c); got != want {
			t.Errorf("%q costs %d, want %d", model, got, want)
		}
	}
	if got := (budget.Prices{"m": {Input: 2.5}}).Cost("m", tokens.Count{Input: 3, Cached: 9}); got != 0 {
		t.Errorf("more from the cache than at all: %d", got)
	}
}
