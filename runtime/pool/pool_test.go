package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
)

// A pool that cannot be filled says so once for each cause, not with each try.
func TestPoolComplainsOnce(t *testing.T) {
	s, fleet, log := newService(t, 0, Config{Image: "absent", Size: 1})
	p := s.configured[0]
	for range 3 {
		s.inspect(t.Context(), p)
	}
	if n := strings.Count(log.String(), "plan pool"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
	p.cfg.Image = ""
	s.inspect(t.Context(), p)
	fleet.fails = sbxerr.New(sbxerr.Posture, "test", "injected")
	for range 3 {
		s.complain(p, "fill pool", s.fillOne(t.Context(), p))
	}
	if n := strings.Count(log.String(), "fill pool"); n != 1 || p.stats().Failures != 3 || p.stats().Ready != 0 {
		t.Errorf("%+v, said %d times:\n%s", p.stats(), n, log)
	}
	failure := fleet.fails
	fleet.fails = nil
	if err := s.fillOne(t.Context(), p); err != nil || p.stats().Ready != 1 {
		t.Errorf("%+v, %v", p.stats(), err)
	}
	s.complain(p, "fill pool", failure)
	if n := strings.Count(log.String(), "fill pool"); n != 2 {
		t.Errorf("after it was filled, said %d times:\n%s", n, log)
	}
}

// What a pool's requests get is told of a pool that names no image too.
func TestStatsNameTheImage(t *testing.T) {
	for named, want := range map[string]string{"": "base", "other": "other"} {
		s, _, _ := newService(t, 0, Config{Image: named, Size: 1})
		if st := s.Stats()[0]; st.Image != want || st.Profile != plan.DefaultProfile {
			t.Errorf("image %q: %+v, want %q", named, st, want)
		}
	}
}

// A pool that shrinks ends what it no longer is to have.
func TestPoolShrinks(t *testing.T) {
	s, _, _ := newService(t, 0, Config{Size: 1, Max: 2})
	p := s.configured[0]
	s.inspect(t.Context(), p)
	p.demand = newDemand(1, 2).ready(1).miss(time.Now().Add(-2 * quietTime))
	fill(t, s, p)
	if st := p.stats(); st.Ready != 2 || st.Target != 2 || st.Max != 2 {
		t.Fatalf("grown: %+v", st)
	}
	stays, surplus := p.ready[0], p.ready[1]
	s.inspect(t.Context(), p)
	if st := p.stats(); st.Ready != 1 || st.Target != 1 || stays.Ended() || !surplus.Ended() {
		t.Errorf("shrunk: %+v", st)
	}
}

// A ready sandbox that ended is handed out to nobody.
func TestEndedSandboxIsNotTaken(t *testing.T) {
	s, _, _ := newService(t, 0, Config{Size: 2})
	p := s.configured[0]
	s.inspect(t.Context(), p)
	fill(t, s, p)
	wanted, lives := p.ready[0].Plan(), p.ready[1]
	p.ready[0].End(errShort)
	if got := p.Take(wanted); got != lives {
		t.Errorf("taken: %+v", got)
	}
	if got := p.Take(wanted); got != nil {
		t.Errorf("an empty pool gave %+v", got)
	}
}
