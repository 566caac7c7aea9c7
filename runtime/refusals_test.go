package runtime

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// refusing is a session in the mode allow, and the function that has its gateway refuse
// something in it.
func refusing(t *testing.T) (f *fixture, id string, refuse func(attempt.Attempt, lookup.Query)) {
	t.Helper()
	f, gateway := newPublishing(t)
	dir := t.TempDir()
	in := func(name string) func(string) string { return func(string) string { return filepath.Join(dir, name) } }
	f.opts.Traffic = traffic.New(traffic.Files{Carried: in("carried"), Rest: in("rest"), Names: in("names")}, slog.New(slog.DiscardHandler))
	id = f.session(t, plan.CreateRequest{}).ID
	counted(t, f, gateway, id, netns.ModeAllow)
	s := f.mustFind(t, id)
	s.update(func() { s.record.Policy = policy.Spec{Mode: policy.Allow, Allow: []string{"a.example"}} })
	t.Cleanup(func() { counted(t, f, gateway, id, netns.ModeNone) }) // so that it can be removed
	return f, id, func(a attempt.Attempt, q lookup.Query) {
		gateway.mu.Lock()
		v := gateway.views[id]
		v.Counters.Refused++
		gateway.views[id] = egress.View{Counters: v.Counters}
		gateway.mu.Unlock()
		if a.Sandbox, q.Sandbox = id, id; q.Name != "" {
			f.opts.Traffic.Queried(q)
			return
		}
		f.opts.Traffic.Attempted(a)
	}
}

func question(name string) lookup.Query {
	return lookup.Query{Name: name, Type: "A", Verdict: lookup.Refused, Code: sbxerr.EgressDenied}
}

func connection(name, to string) attempt.Attempt {
	return attempt.Attempt{Begun: time.Now(), Name: policy.Name(name), Asked: netip.MustParseAddrPort(to), Verdict: attempt.Refused, Code: sbxerr.EgressDenied}
}

// A result names each destination once that was refused while its command ran, with the
// rule that would allow it, and no other command's.
func TestRefusals(t *testing.T) {
	f, id, refuse := refusing(t)
	refuse(attempt.Attempt{}, question("before.example"))
	if r, err := f.Exec(callerContext(t), id, script("exit:0"), IO{}); err != nil || len(r.Refusals) != 0 {
		t.Errorf("what was refused before: %+v, %v", r.Refusals, err)
	}
	e, err := f.StartExec(callerContext(t), id, script("await:10", "exit:0"))
	if err != nil {
		t.Fatal(err)
	}
	refuse(attempt.Attempt{}, question("b.example"))
	refuse(attempt.Attempt{}, question("b.example")) // AAAA
	refuse(connection("a.example", "198.18.0.3:8080"), lookup.Query{})
	refuse(connection("", "203.0.113.7:22"), lookup.Query{})
	refuse(connection("", "127.0.0.9:80"), lookup.Query{})
	inside := connection("a.example", "198.18.0.3:443")
	inside.Code, inside.Private = sbxerr.EgressAddress, true
	refuse(inside, lookup.Query{})
	upstream := connection("up.example", "198.18.0.4:443")
	upstream.Rule = policy.RouteRule(policy.RouteName("models")) // it allows that already
	refuse(upstream, lookup.Query{})
	f.engine.poke(t, id)
	ended, err := f.WaitExec(callerContext(t), id, e.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := []Refusal{
		{"b.example", 0, sbxerr.EgressDenied, "b.example"}, {"a.example", 8080, sbxerr.EgressDenied, "a.example:8080"},
		{"203.0.113.7", 22, sbxerr.EgressDenied, "203.0.113.7:22,private"}, {"127.0.0.9", 80, sbxerr.EgressDenied, ""},
		{"a.example", 443, sbxerr.EgressAddress, "a.example:443,private"},
		{"up.example", 443, sbxerr.EgressDenied, ""},
	}
	if got := ended.Result.Refusals; !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if r, err := f.Exec(callerContext(t), id, script("exit:0"), IO{}); err != nil || len(r.Refusals) != 0 {
		t.Errorf("the next command has %+v, %v", r.Refusals, err)
	}
}

// However much was refused, a result has ten.
func TestManyRefusals(t *testing.T) {
	f, id, refuse := refusing(t)
	e, err := f.StartExec(callerContext(t), id, script("await:10", "exit:0"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		refuse(attempt.Attempt{}, question(fmt.Sprintf("x%d.example", i)))
	}
	f.engine.poke(t, id)
	ended, err := f.WaitExec(callerContext(t), id, e.ID)
	if err != nil || len(ended.Result.Refusals) != maxRefusals || ended.Result.Refusals[9].Name != "x9.example" {
		t.Errorf("%+v, %v", ended.Result, err)
	}
}
