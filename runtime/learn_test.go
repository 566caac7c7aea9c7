package runtime

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/traffic"
	"github.com/caisson-run/caisson/sbxerr"
)

func TestOpened(t *testing.T) {
	profiles := map[string]Profile{DefaultProfile: {}, "web": {Network: Network{Mode: "open"}}, "some": {Network: Network{Mode: "allow"}}}
	for _, tt := range []struct{ profile, network, want string }{
		{"", "", "open"}, {"", "open", "open"}, {"some", "", "open"},
		{"web", "", ""}, // it is open, and needs no grant to be named
		{"web", "open", "open"}, {"no such profile", "", "open"},
		{"", "none", "refused"}, {"", "allow", "refused"}, {"", "bridge", "refused"}, {"web", "allow", "refused"},
	} {
		r, err := Request{Create: CreateRequest{Profile: tt.profile, Network: tt.network}}.opened(profiles)
		got := r.Create.Network
		if err != nil {
			wantError(t, err, sbxerr.Config, tt.network, "open")
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
	wantError(t, err, sbxerr.Config, "waits")
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
	wantError(t, err, sbxerr.Peer, "network")
	f.opts.Network.AirGapped = true
	_, err = f.Run(callerContext(t), r, IO{})
	wantError(t, err, sbxerr.NetPolicy, "air-gapped")
	f.wantNothingLeft(t)
}

// learning is a learner that reads when it is told to, and its log.
func learning(t *testing.T) (*learner, *traffic.Log) {
	t.Helper()
	dir := t.TempDir()
	path := func(string) string { return dir + "/traffic" }
	log := traffic.New(traffic.Files{Entries: path, Names: path}, slog.New(slog.DiscardHandler))
	return &learner{log: log, sandbox: "a", cancel: func() {}, seen: map[policy.Seen]bool{}}, log
}

func reached(name string, port uint16) proxy.Attempt {
	return proxy.Attempt{Sandbox: "a", Name: policy.Name(name), Asked: netip.AddrPortFrom(policy.Pool.Addr(), port), Address: netip.MustParseAddrPort("93.184.215.14:1"), Verdict: proxy.Allowed}
}

// More is learnt than the log holds, and each destination once.
func TestLearnerReadsAlong(t *testing.T) {
	l, log := learning(t)
	log.Attempted(reached("first.example", 443))
	for range 5 { // of which the log keeps the last two, about
		for range 3000 {
			log.Attempted(reached("many.example", 80))
		}
		l.read()
	}
	refused := reached("no.example", 80)
	refused.Verdict = proxy.Refused
	log.Attempted(refused)
	log.Attempted(reached("last.example", 22))
	got := l.finish(0)
	if want := []string{"first.example:443", "last.example:22", "many.example:80"}; !slices.Equal(got.Rules, want) || len(got.Warnings) != 0 {
		t.Errorf("%+v, want %q", got, want)
	}
	if again, err := log.Entries("a", &traffic.Cursor{}); err != nil || again[0].Name == "first.example" {
		t.Errorf("the log holds everything (%v): this shows nothing", err)
	}
}

// It reads by itself while the command runs, and what comes last when it is over.
func TestLearnerFollows(t *testing.T) {
	_, log := learning(t)
	for pause := time.Millisecond; ; pause *= 2 { // nothing says that it has read
		l := newLearner(log, "a")
		time.Sleep(pause)
		log.Attempted(reached("a.example", 443))
		time.Sleep(pause)
		l.stop()
		if len(l.seen) == 1 {
			log.Attempted(reached("b.example", 443))
			if got := l.finish(0).Rules; !slices.Equal(got, []string{"a.example:443", "b.example:443"}) {
				t.Errorf("%q", got)
			}
			return
		}
		if pause > 5*time.Second {
			t.Fatal("it does not read")
		}
	}
}

func TestLearnerWarns(t *testing.T) {
	l, log := learning(t)
	for i := range maxLearned + 1 {
		log.Attempted(reached(fmt.Sprintf("h%d.example", i), 443))
	}
	got := l.finish(3)
	if len(got.Warnings) != 2 || !strings.Contains(got.Warnings[0], "3 attempts") || !strings.Contains(got.Warnings[1], fmt.Sprint(maxLearned)) {
		t.Errorf("%q", got.Warnings)
	}
	if !slices.Equal(got.Rules, []string{"*.example:443"}) && len(got.Rules) != maxLearned {
		t.Errorf("%d rules", len(got.Rules))
	}
}

func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want []string
	}{{nil, nil}, {errInjected, []string{errInjected.Error()}}, {errors.Join(errors.New("a"), errors.New("b")), []string{"a", "b"}}} {
		if got := reasons(tt.err); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q", tt.err, got)
		}
	}
}
