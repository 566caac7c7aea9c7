package runtime

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
)

// A pool that cannot be filled says so once for each cause, not with each try.
func TestPoolComplainsOnce(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	f.Manager.log = slog.New(slog.NewTextHandler(&log, nil))
	ctx := callerContext(t)
	p := &pool{cfg: PoolConfig{Image: "absent", Size: 1}, demand: newDemand(1, 1)}
	for range 3 {
		f.inspectPool(ctx, p)
	}
	if n := strings.Count(log.String(), "plan pool"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &log)
	}
	p.cfg.Image = ""
	f.inspectPool(ctx, p)
	works := f.Manager.stages
	f.replace(stage{name: "posture", create: func(context.Context, *sandbox) error { return sbxerr.New(sbxerr.Posture, "test", "injected") }})
	for range 3 {
		f.complain(p, "fill pool", f.fillOne(ctx, p))
	}
	if n := strings.Count(log.String(), "fill pool"); n != 1 || p.stats().Failures != 3 || p.stats().Ready != 0 {
		t.Errorf("%+v, said %d times:\n%s", p.stats(), n, &log)
	}
	f.Manager.stages = works
	f.replace(stage{name: "posture", create: func(context.Context, *sandbox) error { return nil }})
	if err := f.fillOne(ctx, p); err != nil || p.stats().Ready != 1 {
		t.Errorf("%+v, %v", p.stats(), err)
	}
	f.complain(p, "fill pool", sbxerr.New(sbxerr.Posture, "test", "injected"))
	if n := strings.Count(log.String(), "fill pool"); n != 2 {
		t.Errorf("after it was filled, said %d times:\n%s", n, &log)
	}
}

// What a pool's requests get is told of a pool that names no image too.
func TestPoolStatsNameTheImage(t *testing.T) {
	f := newFixture(t)
	for named, want := range map[string]string{"": f.Manager.opts.Profiles[plan.DefaultProfile].Image, "other": "other"} {
		if st := f.statsOf(&pool{cfg: PoolConfig{Image: named, Size: 1}}); st.Image != want || want == "" || st.Profile != plan.DefaultProfile {
			t.Errorf("image %q: %+v, want %q", named, st, want)
		}
	}
}

// A pool that shrinks ends what it no longer is to have.
func TestPoolShrinks(t *testing.T) {
	f := newFixture(t)
	f.opts.MaxSandboxes = 100
	ctx := callerContext(t)
	p := &pool{cfg: PoolConfig{Size: 1, Max: 2}}
	f.inspectPool(ctx, p)
	p.demand = newDemand(1, 2).ready(1).miss(time.Now().Add(-2 * quietTime))
	for p.wants(f.goal(p)) {
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

// A ready sandbox whose PID 1 was killed is nobody's: nothing of it is kept.
func TestPooledSandboxThatEnds(t *testing.T) {
	f := newFixture(t)
	f.opts.MaxSandboxes = 100
	ctx := callerContext(t)
	p := &pool{cfg: PoolConfig{Size: 1}}
	f.inspectPool(ctx, p)
	if err := f.fillOne(ctx, p); err != nil {
		t.Fatal(err)
	}
	dead := p.ready[0]
	if err := dead.process.kill(); err != nil {
		t.Fatal(err)
	}
	within(t, "the end of what is of no more use", dead.gone)
	f.wantNothingLeft(t)
	if s := p.take(p.kind); s != nil {
		t.Error("it was handed out")
	}
}
