package runtime

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

func TestOpened(t *testing.T) {
	profiles := map[string]plan.Profile{plan.DefaultProfile: {}, "web": {Network: plan.Network{Mode: "open"}}, "some": {Network: plan.Network{Mode: "allow"}}}
	for _, tt := range []struct{ profile, network, want string }{
		{"", "", "open"}, {"", "open", "open"}, {"some", "", "open"},
		{"web", "", ""}, // it is open, and needs no grant to be named
		{"web", "open", "open"}, {"no such profile", "", "open"},
		{"", "none", "refused"}, {"", "allow", "refused"}, {"", "bridge", "refused"}, {"web", "allow", "refused"},
	} {
		r, err := opened(plan.Request{Create: plan.CreateRequest{Profile: tt.profile, Network: tt.network}}, profiles)
		got := r.Create.Network
		if err != nil {
			errtest.Want(t, err, sbxerr.Config, tt.network, "open")
			got = "refused"
		}
		if got != tt.want {
			t.Errorf("profile %q, mode %q: %q, want %q", tt.profile, tt.network, got, tt.want)
		}
	}
}

func TestLearnIsNotDetached(t *testing.T) {
	f := newFixture(t)
	r := request("exit:0")
	r.Learn = true
	_, err := f.Start(callerContext(t), r)
	errtest.Want(t, err, sbxerr.Config, "waits")
	f.wantNothingLeft(t)
}

// Who may not name a network may not learn in one.
func TestLearnIsGranted(t *testing.T) {
	f, _ := newPublishing(t)
	rule := peer.Rule{UIDs: []uint32{1000}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota()}
	var err error
	if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	r := request("exit:0")
	r.Learn = true
	_, err = f.Run(peer.NewContext(t.Context(), peer.User(1000, 1000, nil, 0)), r, IO{})
	errtest.Want(t, err, sbxerr.Peer, "network")
	f.opts.Network.AirGapped = true
	_, err = f.Run(callerContext(t), r, IO{})
	errtest.Want(t, err, sbxerr.NetPolicy, "air-gapped")
	f.wantNothingLeft(t)
}

func reached(name string, port uint16) attempt.Attempt {
	return attempt.Attempt{Sandbox: "a", Name: policy.Name(name), Asked: netip.AddrPortFrom(policy.Pool.Addr(), port), Address: netip.MustParseAddrPort("93.184.215.14:1"), Verdict: attempt.Allowed}
}

// long makes entries that are soon dropped.
var long = strings.Repeat("long ", 60)

// What was reached in a session is learnt: what cannot be a rule, what is open and what is gone leave the
// other rules there, and are warned of.
func TestLearnPolicyWarns(t *testing.T) {
	f, gateway := newPublishing(t)
	f.opts.Traffic = traffic.New(TrafficFiles(f.paths.root, f.paths.state), slog.New(slog.DiscardHandler))
	id := f.session(t, plan.CreateRequest{}).ID
	try := func(a attempt.Attempt) {
		a.Sandbox = id
		f.opts.Traffic.Attempted(a)
	}
	try(reached("a.example", 443))
	try(attempt.Attempt{Asked: netip.MustParseAddrPort("198.18.3.4:80"), Address: netip.MustParseAddrPort("198.18.3.4:80"), Verdict: attempt.Allowed})
	const missed = "9.9.9.9:853 was refused: where it is wanted, learn again with --allow 9.9.9.9:853"
	const private = "10.0.0.1:80 was refused: where it is wanted, learn again with --allow 10.0.0.1:80,private"
	const absent = "absent.example was not reached: there is no such name"
	for range 6000 {
		f.opts.Traffic.Queried(lookup.Query{Sandbox: id, Name: "nope.example", Verdict: lookup.Refused, Reason: long})
	}
	for _, to := range []string{"9.9.9.9:853", "9.9.9.9:853", "10.0.0.1:80"} {
		try(attempt.Attempt{Asked: netip.MustParseAddrPort(to), Verdict: attempt.Refused, Rule: "mode open", Code: sbxerr.EgressDenied, Reason: to + " is an address that no rule allows"})
	}
	f.opts.Traffic.Queried(lookup.Query{Sandbox: id, Name: "absent.example", Verdict: lookup.Absent, Code: sbxerr.EgressResolve, Reason: "there is no such name"})
	want := func(rules []string, warnings ...string) {
		t.Helper()
		got, err := f.LearnPolicy(callerContext(t), id)
		if err != nil || !slices.Equal(got.Rules, rules) || len(got.Warnings) != len(warnings) {
			t.Fatalf("%+v, %v", got, err)
		}
		for i, w := range warnings {
			if !strings.Contains(got.Warnings[i], w) {
				t.Errorf("%q, want %q", got.Warnings[i], w)
			}
		}
	}
	want([]string{"a.example:443"}, "no rule reaches it", missed, private, absent)
	counted(t, f, gateway, id, netns.ModeOpen)
	want([]string{"a.example:443"}, "no rule reaches it", missed, private, absent, "2 attempts have no record")
	gateway.views[id] = egress.View{Counters: egress.Counters{Open: 1}}
	want([]string{"a.example:443"}, "no rule reaches it", missed, private, absent, "1 connections are open")
	for range 6000 {
		b := reached("b.example", 443)
		b.Rule = long
		try(b)
	}
	want([]string{"b.example:443"}, missed, private, absent, "1 connections are open", "no longer kept")
}

// Who reads the log is told that entries are gone, before the first that is left.
func TestTrafficTellsOfGaps(t *testing.T) {
	f, _ := newPublishing(t)
	f.opts.Traffic = traffic.New(TrafficFiles(f.paths.root, f.paths.state), slog.New(slog.DiscardHandler))
	id := f.session(t, plan.CreateRequest{}).ID
	read := func() (list []TrafficEntry) {
		t.Helper()
		if err := f.Traffic(callerContext(t), id, "", false, func(e TrafficEntry) error { list = append(list, e); return nil }); err != nil {
			t.Fatal(err)
		}
		return list
	}
	for range 6000 {
		f.opts.Traffic.Queried(lookup.Query{Sandbox: id, Name: "nope.example", Verdict: lookup.Refused, Reason: long})
	}
	few := read()
	if few[0].Kind != TrafficGap || few[0].Reason == "" || !few[0].Time.Equal(few[1].Time) || len(few) == 6001 {
		t.Errorf("%d entries, the first %+v", len(few), few[0])
	}
	for _, e := range few[1:] {
		if e.Kind != traffic.Lookup || e.Sandbox != id || few[0].Sandbox != id {
			t.Fatalf("%+v", e)
		}
	}
	for range 6000 {
		a := reached("b.example", 443)
		a.Sandbox, a.Rule = id, long
		f.opts.Traffic.Attempted(a)
	}
	if all := read(); all[0].Kind != TrafficGap || all[0].Reason == few[0].Reason {
		t.Errorf("the first %+v", all[0])
	}
}
