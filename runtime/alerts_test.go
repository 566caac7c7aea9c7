package runtime

import (
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

func TestAlerts(t *testing.T) {
	var told []string
	bus := events.New(events.Options{Observers: []func(*events.Event){func(e *events.Event) {
		if e.Type == events.AlertRaised {
			told = append(told, e.Data.Name+" "+e.Data.Limit+" "+e.Data.Reason)
		}
	}}})
	f, gateway := newPublishing(t, func(o *Options) { o.Events = bus })
	p := f.opts.Profiles[plan.DefaultProfile]
	p.Alerts = plan.Alerts{Memory: plan.Threshold{Percent: 90}, CPU: plan.Threshold{Percent: 95, For: time.Hour}, Refusals: 2}
	f.opts.Profiles = map[string]plan.Profile{plan.DefaultProfile: p}
	id := f.session(t, plan.CreateRequest{Name: "greedy"}).ID
	limit := p.Limits.MemoryBytes
	for _, bytes := range []int64{limit / 2, limit, limit, limit / 2, limit} {
		f.uses(t, id, time.Hour, bytes)
		f.sampleAll(t.Context())
	}
	want := []string{"greedy memory 100.0% of the limit, the alert is above 90%"} // once, as it was below for a moment only
	if !slices.Equal(told, want) {
		t.Errorf("%q; want %q", told, want)
	}
	counted(t, f, gateway, id, "allow")
	gateway.mu.Lock()
	gateway.views[id] = egress.View{Counters: egress.Counters{Counts: traffic.Counts{Refused: 2, Denied: 1}}}
	gateway.mu.Unlock()
	told = nil
	for range 2 {
		f.sampleAll(t.Context())
	}
	if want := []string{"greedy refusals 3 connections and lookups refused, the alert is above 2"}; !slices.Equal(told, want) {
		t.Errorf("%q", told)
	}
}

func TestNoAlerts(t *testing.T) {
	raised := false
	bus := events.New(events.Options{Observers: []func(*events.Event){func(e *events.Event) { raised = raised || e.Type == events.AlertRaised }}})
	f := newFixture(t, func(o *Options) { o.Events = bus })
	id := f.session(t, plan.CreateRequest{}).ID
	f.uses(t, id, time.Hour, 1<<50)
	f.sampleAll(t.Context())
	if raised {
		t.Error("an alert that nobody asked for")
	}
}
