package pool

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/runtime/plan"
)

// fakeFleet makes sandboxes out of nothing.
type fakeFleet struct {
	mu      sync.Mutex
	most    int // sandboxes that may live
	live    int
	waiting bool
	fails   error // Make fails by it
}

func (f *fakeFleet) Plan(_ context.Context, r plan.CreateRequest) (*plan.Sandbox, error) {
	if r.Image == "absent" {
		return nil, sbxerr.New(sbxerr.ImageNotFound, "test", "absent")
	}
	p := &plan.Sandbox{ProfileName: cmp.Or(r.Profile, plan.DefaultProfile), Request: r}
	p.Image.Name = "base"
	if r.Limits != nil {
		p.Limits = plan.Limits(settings.Limits{PIDs: r.Limits.GetPids()})
	}
	return p, nil
}

func (f *fakeFleet) Make(_ context.Context, p *plan.Sandbox) (Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails != nil {
		return nil, f.fails
	}
	f.live++
	return &fakeSandbox{fleet: f, plan: p, gone: make(chan struct{})}, nil
}

func (f *fakeFleet) Room() (free, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most - f.live, f.most
}

func (f *fakeFleet) Waiting() bool { return f.waiting }

func (f *fakeFleet) ImageOf(string) string { return "base" }

type fakeSandbox struct {
	fleet *fakeFleet
	plan  *plan.Sandbox
	cause error
	gone  chan struct{}
}

func (s *fakeSandbox) Plan() *plan.Sandbox { return s.plan }

func (s *fakeSandbox) End(cause error) {
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	s.cause = cause
	s.fleet.live--
	close(s.gone)
}

func (s *fakeSandbox) Ended() bool           { return s.cause != nil }
func (s *fakeSandbox) Usable() bool          { return !s.Ended() }
func (s *fakeSandbox) Gone() <-chan struct{} { return s.gone }

// newService makes pools whose fillers do not run: tests fill them. It returns their log.
func newService(t *testing.T, warm int, configs ...Config) (*Service, *fakeFleet, *bytes.Buffer) {
	t.Helper()
	log, fleet := new(bytes.Buffer), &fakeFleet{most: 100}
	s := New(configs, warm, fleet, nil, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a filler ends at once
	s.filling = ctx
	return s, fleet, log
}

// fill makes what p is to have.
func fill(t *testing.T, s *Service, p *Pool) {
	t.Helper()
	for p.wants(s.goal(p)) {
		if err := s.fillOne(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
}
