package pool

import (
	"slices"
	"testing"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime/plan"
)

// askFor asks for pids and returns the pool that the request began or found, and its plan.
func askFor(t *testing.T, s *Service, pids int64) (*Pool, *plan.Sandbox) {
	t.Helper()
	p, err := s.fleet.Plan(t.Context(), plan.CreateRequest{Limits: &caissonv1.Limits{Pids: &pids}})
	if err != nil {
		t.Fatal(err)
	}
	pools := s.For(p)
	s.fillers.Wait()
	if len(pools) != 1 {
		t.Fatalf("%d pools", len(pools))
	}
	return pools[0], p
}

// A kind that was asked for gets its own pool, which makes sandboxes of this kind.
func TestAdaptivePool(t *testing.T) {
	s, _, _ := newService(t, 4)
	p, wanted := askFor(t, s, 40)
	if again, _ := askFor(t, s, 40); again != p {
		t.Error("a second request began another pool")
	}
	if p.wants(s.goal(p)) {
		t.Error("it wants a sandbox before any request missed one")
	}
	if got := p.Take(wanted); got != nil {
		t.Fatal("an empty pool gave a sandbox")
	}
	fill(t, s, p)
	if st := p.stats(); st.Ready != 1 || st.Target != 1 || st.Max != 4 || st.Misses != 1 {
		t.Fatalf("after a miss: %+v", st)
	}
	got := p.Take(wanted)
	if got == nil || got.Plan().Limits.PIDs != 40 {
		t.Fatalf("taken: %+v", got)
	}
	p.asked = time.Now().Add(-warmTime)
	p.demand.missed = p.asked
	s.inspect(t.Context(), p)
	if !s.retire(p) || len(s.warmed()) != 0 {
		t.Errorf("after %s it still holds something: %+v", warmTime, p.stats())
	}
}

// Kinds share the places: one each first, those asked for last before others.
func TestAdaptiveShares(t *testing.T) {
	s, _, _ := newService(t, 4)
	now := time.Now()
	var pools []*Pool
	for i, want := range []int{4, 1, 0, 2} {
		p, _ := askFor(t, s, int64(40+i))
		p.demand.want, p.asked = want, now.Add(time.Duration(i)*time.Second)
		pools = append(pools, p)
	}
	var shares []int
	for _, p := range pools {
		shares = append(shares, s.goal(p))
	}
	if want := []int{1, 1, 0, 2}; !slices.Equal(shares, want) {
		t.Errorf("shares %v, want %v", shares, want)
	}
	pools[1].filling = 3 // more than its share, until it is trimmed
	if n := s.goal(pools[3]); n != 1 {
		t.Errorf("beside what others hold: %d", n)
	}
}

// What waits for nobody in particular makes room for a request, and what is configured stays.
func TestGiveBack(t *testing.T) {
	s, fleet, _ := newService(t, 4, Config{Profile: "other", Size: 1})
	s.inspect(t.Context(), s.configured[0])
	fill(t, s, s.configured[0])
	p, wanted := askFor(t, s, 40)
	p.Take(wanted)
	fill(t, s, p)
	if fleet.live != 2 || !s.GiveBack(t.Context()) || fleet.live != 1 || p.stats().Ready != 0 {
		t.Errorf("%d live, %+v", fleet.live, p.stats())
	}
	if s.GiveBack(t.Context()) {
		t.Error("it gave back what there was not")
	}
}

// A request that a configured pool is for is served by it alone.
func TestNoAdaptivePool(t *testing.T) {
	wanted, _ := new(fakeFleet).Plan(t.Context(), plan.CreateRequest{})
	s, _, _ := newService(t, 4, Config{Size: 1})
	if pools := s.For(wanted); len(pools) != 1 || pools[0] != s.configured[0] {
		t.Error("a configured pool is passed over")
	}
	s, _, _ = newService(t, 0)
	if pools := s.For(wanted); len(pools) != 0 {
		t.Error("a pool begins with warm: 0")
	}
	s, _, _ = newService(t, 4)
	s.Stop()
	if pools := s.For(wanted); len(pools) != 0 {
		t.Error("a pool begins while the daemon stops")
	}
}
