package runtime

import (
	"context"
	"slices"
	"testing"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// newWarm is a fixture that keeps up to max sandboxes ready, without fillers: tests fill.
func newWarm(t *testing.T, max int) *fixture {
	f := newFixture(t)
	f.opts.MaxSandboxes, f.adaptive.max = 100, max
	ctx, cancel := context.WithCancel(peer.NewContext(context.Background(), peer.System))
	cancel() // a filler ends at once
	f.adaptive.start(ctx)
	return f
}

func (f *fixture) planOf(t *testing.T, r plan.CreateRequest) *plan.Sandbox {
	t.Helper()
	p, err := f.planFor(peer.NewContext(t.Context(), peer.System), r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// askFor asks for pids and returns the pool that the request began or found.
func (f *fixture) askFor(t *testing.T, pids int64) *pool {
	t.Helper()
	pools := f.poolsFor(f.planOf(t, plan.CreateRequest{Limits: &caissonv1.Limits{Pids: &pids}}))
	f.fillers.Wait()
	if len(pools) != 1 {
		t.Fatalf("%d pools", len(pools))
	}
	return pools[0]
}

// A kind that was asked for gets its own pool, which makes sandboxes of this kind.
func TestAdaptivePool(t *testing.T) {
	f := newWarm(t, 4)
	p := f.askFor(t, 40)
	if again := f.askFor(t, 40); again != p {
		t.Error("a second request began another pool")
	}
	if p.wants(f.goal(p)) {
		t.Error("it wants a sandbox before any request missed one")
	}
	if s := p.take(p.key); s != nil {
		t.Fatal("an empty pool gave a sandbox")
	}
	ctx := peer.NewContext(t.Context(), peer.System)
	for p.wants(f.goal(p)) {
		if err := f.fillOne(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	if st := p.stats(); st.Ready != 1 || st.Target != 1 || st.Max != 4 || st.Misses != 1 {
		t.Fatalf("after a miss: %+v", st)
	}
	s := p.take(p.key)
	if s == nil || s.kept().Limits.PIDs != 40 {
		t.Fatalf("taken: %+v", s)
	}
	s.end(errSurplus)
	within(t, "its end", s.gone)
	p.asked = time.Now().Add(-warmTime)
	p.demand.missed = p.asked
	f.inspectPool(ctx, p)
	if !f.adaptive.retire(p) || len(f.adaptive.list()) != 0 || len(f.all()) != 0 {
		t.Errorf("after %s it still holds something: %+v", warmTime, p.stats())
	}
	f.wantNothingLeft(t)
}

// Kinds share the places: one each first, those asked for last before others.
func TestAdaptiveShares(t *testing.T) {
	f := newWarm(t, 4)
	now := time.Now()
	var pools []*pool
	for i, want := range []int{4, 1, 0, 2} {
		p := f.askFor(t, int64(40+i))
		p.demand.want, p.asked = want, now.Add(time.Duration(i)*time.Second)
		pools = append(pools, p)
	}
	var shares []int
	for _, p := range pools {
		shares = append(shares, f.goal(p))
	}
	if want := []int{1, 1, 0, 2}; !slices.Equal(shares, want) {
		t.Errorf("shares %v, want %v", shares, want)
	}
	pools[1].filling = 3 // more than its share, until it is trimmed
	if n := f.goal(pools[3]); n != 1 {
		t.Errorf("beside what others hold: %d", n)
	}
	pools[1].filling = 0
}

// What waits for nobody in particular makes room for a request.
func TestGiveBack(t *testing.T) {
	f := newWarm(t, 4)
	f.opts.MaxSandboxes = 2
	p := f.askFor(t, 40)
	p.demand.want = 1
	ctx := peer.NewContext(t.Context(), peer.System)
	if err := f.fillOne(ctx, p); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := f.Create(callerContext(t), plan.CreateRequest{Name: name}); err != nil {
			t.Errorf("create %s beside a pooled sandbox: %v", name, err)
		}
	}
	if st := p.stats(); st.Ready != 0 {
		t.Errorf("still ready: %+v", st)
	}
}

// One more request that is configured is served by its pool alone.
func TestNoAdaptivePool(t *testing.T) {
	f := newWarm(t, 4)
	f.pools = newPools([]PoolConfig{{Size: 1}})
	if pools := f.poolsFor(f.planOf(t, plan.CreateRequest{})); len(pools) != 1 || pools[0] != f.pools[0] {
		t.Error("a configured pool is passed over")
	}
	f.pools = nil
	f.adaptive.max = 0
	if pools := f.poolsFor(f.planOf(t, plan.CreateRequest{})); len(pools) != 0 {
		t.Error("a pool begins with warm: 0")
	}
	f.adaptive.max = 4
	f.adaptive.stop()
	if pools := f.poolsFor(f.planOf(t, plan.CreateRequest{})); len(pools) != 0 {
		t.Error("a pool begins while the daemon stops")
	}
}
