package runtime

import (
	"testing"
	"time"
)

// A pool that shrinks ends what it no longer is to have.
func TestPoolShrinks(t *testing.T) {
	f := newFixture(t)
	f.opts.MaxSandboxes = 100
	ctx := callerContext(t)
	p := &pool{cfg: PoolConfig{Size: 1, Max: 2}}
	f.inspectPool(ctx, p)
	p.demand = newDemand(1, 2).ready(1).miss(time.Now().Add(-2 * quietTime))
	for p.wants(f.room()) {
		if err := f.fillOne(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	if st := p.stats(); st.Ready != 2 || st.Target != 2 || st.Max != 2 {
		t.Fatalf("grown: %+v", st)
	}
	stays, surplus := p.ready[0], p.ready[1]
	f.inspectPool(ctx, p)
	if st := p.stats(); st.Ready != 1 || st.Target != 1 || stays.endCause() != nil {
		t.Errorf("shrunk: %+v", st)
	}
	within(t, "the end of what is too much", surplus.gone)
}
