package runtime

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// counted has the gateway count something for a sandbox that is made in it.
func counted(t *testing.T, f *fixture, gateway *fakeEgress, id string, mode netns.Mode) {
	t.Helper()
	s, err := f.find(callerContext(t), id)
	if err != nil {
		t.Fatal(err)
	}
	s.update(func() { s.record.Network = mode })
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	if gateway.views == nil {
		gateway.views = map[string]egress.View{}
	}
	gateway.views[id] = egress.View{Counters: egress.Counters{Counts: traffic.Counts{Allowed: 7, Sent: 1 << 63}, Lost: 2}}
}

// The result of a command in a session has all that was told when the gateway was asked.
func TestCountersOfExec(t *testing.T) {
	f, gateway := newPublishing(t)
	id := f.session(t, plan.CreateRequest{}).ID
	counted(t, f, gateway, id, netns.ModeAllow)
	r, err := f.Exec(callerContext(t), id, script("exit:0"), IO{})
	if err != nil || r.Egress == nil || r.Egress.Allowed != 7 || r.Egress.SentBytes != 1<<63-1 || r.Egress.Lost != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if gateway.refreshed != 1 {
		t.Errorf("the gateway was asked %d times", gateway.refreshed)
	}
	if d, err := f.Inspect(callerContext(t), id); err != nil || d.Egress == nil || d.Egress.Allowed != 7 || gateway.refreshed != 2 {
		t.Errorf("inspected: %+v, %v, asked %d times", d.Egress, err, gateway.refreshed)
	}
	if _, err := f.LearnPolicy(callerContext(t), id); err != nil || gateway.refreshed != 3 { // what it told is all there is
		t.Errorf("learnt: %v, asked %d times", err, gateway.refreshed)
	}
}

// That of the command which a sandbox is for has all of them: it asks.
func TestCountersOfRun(t *testing.T) {
	f, gateway := newPublishing(t)
	info, err := f.Start(callerContext(t), request("await:10", "exit:0"))
	if err != nil {
		t.Fatal(err)
	}
	counted(t, f, gateway, info.ID, netns.ModeOpen)
	f.engine.poke(t, info.ID)
	if r := f.over(t, info.ID).Result; r.Egress == nil || r.Egress.Allowed != 7 || gateway.refreshed != 1 {
		t.Errorf("%+v, asked %d times", r.Egress, gateway.refreshed)
	}
}

// What is not told in time is not counted, and that is said.
func TestCountersOfTooMuch(t *testing.T) {
	f, gateway := newPublishing(t)
	gateway.behind = true
	info, err := f.Start(callerContext(t), request("await:10", "exit:0"))
	if err != nil {
		t.Fatal(err)
	}
	counted(t, f, gateway, info.ID, netns.ModeBridge)
	f.engine.poke(t, info.ID)
	r := f.over(t, info.ID).Result
	if r.Egress == nil || r.Egress.Allowed != 7 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "not all that the sandbox tried is counted: ") {
		t.Errorf("%+v, warnings %q", r.Egress, r.Warnings)
	}
}

// A gateway that does not answer costs a bounded time, and no counters, and that is said.
func TestCountersOfSilence(t *testing.T) {
	f, gateway := newPublishing(t)
	gateway.silent = true
	info, err := f.Start(callerContext(t), request("await:10", "exit:0"))
	if err != nil {
		t.Fatal(err)
	}
	counted(t, f, gateway, info.ID, netns.ModeOpen)
	begun := time.Now()
	f.engine.poke(t, info.ID)
	r := f.over(t, info.ID).Result
	if r.Egress == nil || r.Egress.Allowed != 7 {
		t.Errorf("%+v", r.Egress)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "not all that the sandbox tried is counted: ") {
		t.Errorf("warnings %q", r.Warnings)
	}
	if took := time.Since(begun); took < countTimeout || took > countTimeout+5*time.Second {
		t.Errorf("that took %s", took)
	}
}

// What the gateway does not see, it does not count.
func TestNoCounters(t *testing.T) {
	f, gateway := newPublishing(t)
	id := f.session(t, plan.CreateRequest{}).ID
	counted(t, f, gateway, id, netns.ModeNone)
	r, err := f.Exec(callerContext(t), id, script("exit:0"), IO{})
	if err != nil || r.Egress != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// In the mode bridge the link counts the bytes, and without a gateway only records are lost.
func TestCountersOfBridge(t *testing.T) {
	f, gateway := newPublishing(t)
	id := f.session(t, plan.CreateRequest{}).ID
	bridge := &memoryBridge{}
	f.opts.Bridge = bridge
	counted(t, f, gateway, id, netns.ModeBridge)
	gateway.views[id] = egress.View{Counters: egress.Counters{Counts: traffic.Counts{Refused: 5}, Lost: 2}}
	r, err := f.Exec(callerContext(t), id, script("exit:0"), IO{})
	if err != nil || r.Egress == nil || *r.Egress != (EgressCounters{Refused: 5, Lost: 2, SentBytes: 3000, ReceivedBytes: 4000}) || len(r.Warnings) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	bridge.err = errInjected // the link is gone
	r, err = f.Exec(callerContext(t), id, script("exit:0"), IO{})
	if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], errInjected.Error()) {
		t.Errorf("without a link: %+v, %v", r, err)
	}
	bridge.err = nil
	gateway.views[id] = egress.View{Failure: errInjected}
	r, err = f.Exec(callerContext(t), id, script("exit:0"), IO{})
	if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "refusals were not recorded") {
		t.Errorf("without a gateway: %+v, %v", r, err)
	}
	counted(t, f, gateway, id, netns.ModeNone) // so that it can be removed
}

// Everybody is told of the sandboxes that they may see, and the gateway is asked
// once for all of them.
func TestCountersInHostInfo(t *testing.T) {
	f, gateway := newPublishing(t)
	rule := peer.Rule{UIDs: []uint32{1000, 1001}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota()}
	var err error
	if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	as := func(uid uint32) context.Context { return peer.NewContext(t.Context(), peer.User(uid, uid, nil, 0)) }
	want := map[uint32][]string{}
	for i, uid := range []uint32{1000, 1001, 1000} {
		info, err := f.Create(as(uid), plan.CreateRequest{Name: fmt.Sprintf("box%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		counted(t, f, gateway, info.ID, netns.ModeAllow)
		want[uid], want[0] = append(want[uid], info.Name), append(want[0], info.Name)
	}
	f.session(t, plan.CreateRequest{Name: "alone"}) // in the mode none
	for uid, names := range want {
		ctx := callerContext(t)
		if uid != 0 {
			ctx = as(uid)
		}
		gateway.refreshed = 0
		st, err := f.HostInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range st.Networks {
			got = append(got, n.Name)
			if n.Network != "allow" || n.Egress.Allowed != 7 {
				t.Errorf("%+v", n)
			}
		}
		if !slices.Equal(got, names) || gateway.refreshed != 1 {
			t.Errorf("user %d is told of %q, not %q; the gateway was asked %d times", uid, got, names, gateway.refreshed)
		}
	}
}

// Who asks, and whose command may have failed for it, is told that the network is
// not served.
func TestNetworkFailure(t *testing.T) {
	f, gateway := newPublishing(t)
	id := f.session(t, plan.CreateRequest{}).ID
	told := func() (inspected, warned string) {
		t.Helper()
		d, err := f.Inspect(callerContext(t), id)
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Exec(callerContext(t), id, script("exit:0"), IO{})
		if err != nil {
			t.Fatal(err)
		}
		return d.NetworkFailure, strings.Join(r.Warnings, "\n")
	}
	if inspected, warned := told(); inspected+warned != "" {
		t.Errorf("without a network: %q, %q", inspected, warned)
	}
	counted(t, f, gateway, id, netns.ModeAllow)
	if inspected, warned := told(); inspected+warned != "" {
		t.Errorf("while it is served: %q, %q", inspected, warned)
	}
	gateway.views[id] = egress.View{Failure: errInjected}
	if inspected, warned := told(); inspected != errInjected.Error() || !strings.Contains(warned, "not served") || !strings.Contains(warned, errInjected.Error()) {
		t.Errorf("%q, %q", inspected, warned)
	}
	delete(gateway.views, id)
	if inspected, warned := told(); !strings.Contains(inspected, "does not know") || !strings.Contains(warned, "does not know") {
		t.Errorf("of one that the gateway lost: %q, %q", inspected, warned)
	}
	counted(t, f, gateway, id, netns.ModeAllow)
	gateway.behind = true
	const partly = "not all that the sandbox tried is counted"
	if inspected, warned := told(); inspected != "" || !strings.Contains(warned, partly) {
		t.Errorf("while there is more to tell: %q, %q", inspected, warned)
	}
	gateway.behind, gateway.silent = false, true
	if inspected, warned := told(); !strings.Contains(inspected, context.DeadlineExceeded.Error()) || !strings.Contains(warned, partly) {
		t.Errorf("while the gateway does not answer: %q, %q", inspected, warned)
	}
}
