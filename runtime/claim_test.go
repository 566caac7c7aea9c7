package runtime

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/pool"
)

// pooled gives f a pool with n ready sandboxes, which is not filled again. It returns the
// oldest one.
func (f *fixture) pooled(t *testing.T, n int) *sandbox {
	t.Helper()
	f.Manager.pools = pool.New([]pool.Config{{Size: n}}, 0, poolFleet{f.Manager}, nil, f.log)
	f.Manager.pools.Start(t.Context())
	eventually(t, "the pool is full", func() bool { return f.pool().Ready == n })
	f.Manager.pools.Stop()
	all := f.all()
	return all[slices.IndexFunc(all, func(s *sandbox) bool { return s.kept().Pooled })]
}

// pool counts the sandboxes of the only pool.
func (f *fixture) pool() pool.Stats { return f.pools.Stats()[0] }

// A name that is taken is told at once, whatever makes the request a repeatable
// one, and costs no ready sandbox.
func TestTakenNamesEndARepeatableCreate(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	mine := f.session(t, plan.CreateRequest{Name: "mine", Key: "k1"})
	foreign, err := f.Create(f.peer(t), plan.CreateRequest{Name: "theirs"})
	if err != nil {
		t.Fatal(err)
	}
	waiting := f.pooled(t, 1)
	for name, tt := range map[string]struct {
		r     plan.CreateRequest
		words string
	}{
		"another key":      {plan.CreateRequest{Name: "mine", Key: "k2"}, `the name "mine" is taken by sandbox ` + mine.ID},
		"an ID":            {plan.CreateRequest{Name: mine.ID, Ensure: true}, "is taken by sandbox " + mine.ID},
		"an ID and a key":  {plan.CreateRequest{Name: mine.ID, Key: "k2"}, "is taken by sandbox " + mine.ID},
		"another's ID":     {plan.CreateRequest{Name: foreign.ID, Ensure: true}, `the name "` + foreign.ID + `" is taken`},
		"a ready one's ID": {plan.CreateRequest{Name: waiting.id, Ensure: true}, `the name "` + waiting.id + `" is taken`},
		"a key's name":     {plan.CreateRequest{Name: "other", Key: "k1"}, "other settings: name"},
		"no repetition":    {plan.CreateRequest{Name: "mine"}, `the name "mine" is taken`},
	} {
		failed := make(chan error, 1)
		go func() { _, err := f.Create(ctx, tt.r); failed <- err }()
		err := within(t, "an answer to "+name, failed)
		errtest.Want(t, err, sbxerr.Exists, tt.words)
		if tt.r.Name == foreign.ID && strings.Contains(err.Error(), "by sandbox") {
			t.Errorf("it tells of a sandbox that the caller does not see: %v", err)
		}
	}
	if st := f.pool(); st.Ready != 1 || st.Misses != 0 || st.Hits != 0 || waiting.endCause() != nil {
		t.Errorf("the pool: %+v, %v", st, waiting.endCause())
	}
}

// Equal requests at once are for one sandbox, and use up one.
func TestEqualRequestsShareAReadySandbox(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	f.pooled(t, 3)
	for _, r := range []plan.CreateRequest{{Name: "s", Ensure: true}, {Key: "k"}} {
		made := make(chan Info, 8)
		for range cap(made) {
			go func() {
				info, err := f.Create(ctx, r)
				if err != nil {
					t.Error(err)
				}
				made <- info
			}()
		}
		id := within(t, "a sandbox", made).ID
		for range cap(made) - 1 {
			if other := within(t, "a sandbox", made); other.ID != id {
				t.Errorf("%+v: another sandbox, %s beside %s", r, other.ID, id)
			}
		}
	}
	if st := f.pool(); st.Ready != 1 || st.Hits != 2 {
		t.Errorf("the pool: %+v", st)
	}
}

// TestListingWhileSandboxesAreClaimed is for the race detector.
func TestListingWhileSandboxesAreClaimed(t *testing.T) {
	f := newFixture(t)
	f.pooled(t, 4)
	ctx, cancel := context.WithCancel(callerContext(t))
	var onlooker sync.WaitGroup
	onlooker.Go(func() {
		for ctx.Err() == nil {
			_, _ = f.List(ctx)
		}
	})
	for range 4 {
		f.session(t, plan.CreateRequest{})
	}
	cancel()
	onlooker.Wait()
}

// A plan that gets another sandbox leaves alone what was recorded of the one before.
func TestBecomeChangesNoRecord(t *testing.T) {
	p := &plan.Sandbox{ID: idA1, Name: idA1, Env: []string{"A=b", "HOSTNAME=" + idA1}}
	before := newRecord(p, "boot", time.Time{})
	p.Become(idB)
	if got := before.Env[1]; got != "HOSTNAME="+idA1 {
		t.Errorf("the record has %s", got)
	}
	if p.ID != idB || p.Name != idB || p.Env[1] != "HOSTNAME="+idB {
		t.Errorf("the plan has %s, %s, %s", p.ID, p.Name, p.Env)
	}
}

// The environment of a run names the sandbox that it is in.
func TestRunInAReadySandboxKnowsItsName(t *testing.T) {
	f := newFixture(t)
	ready := f.pooled(t, 1).id
	var out bytes.Buffer
	if _, err := f.Run(callerContext(t), request("env", "exit:0"), IO{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "HOSTNAME="+ready) {
		t.Errorf("in sandbox %s:\n%s", ready, &out)
	}
}

// A ready sandbox that cannot be made what was asked for has served nobody.
func TestSpoiltSandboxIsNoHit(t *testing.T) {
	f := newFixture(t)
	spoilt := f.pooled(t, 2)
	// its cgroup is without the file of the limit that is to change
	info := f.session(t, plan.CreateRequest{Name: "s", Limits: &caissonv1.Limits{MemoryBytes: new(int64(64 << 20))}})
	if st := f.pool(); info.ID == spoilt.id || st.Hits != 0 || st.Misses != 1 {
		t.Errorf("made %s, the pool %+v", info.ID, st)
	}
	within(t, "the end of the spoilt one", spoilt.gone)
	if info := f.session(t, plan.CreateRequest{}); f.pool().Hits != 1 {
		t.Errorf("made %s, the pool %+v", info.ID, f.pool())
	}
}

// A ready sandbox that is removed while it is claimed is not replaced by another.
func TestRemovedWhileItIsClaimed(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	f.pooled(t, 1)
	p, err := f.planFor(ctx, plan.CreateRequest{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	s, was, err := f.claim(f.pools.For(p)[0], p)
	if err != nil {
		t.Fatal(err)
	}
	removed := make(chan error, 1)
	go func() { _, err := f.Remove(ctx, "s", true); removed <- err }()
	within(t, "the wish for its end", s.asked)
	errtest.Want(t, f.assign(ctx, s, was, p, nil), sbxerr.Canceled, "the sandbox was removed")
	if err := within(t, "its removal", removed); err != nil {
		t.Error(err)
	}
}

// A daemon that stops gives no ready sandbox away: it would end a moment later.
func TestNothingIsClaimedOnceClosed(t *testing.T) {
	f := newFixture(t)
	f.pooled(t, 1)
	f.refuse()
	_, err := f.Create(callerContext(t), plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.State, "the daemon is stopping")
	if st := f.pool(); st.Ready != 1 || st.Hits != 0 {
		t.Errorf("the pool: %+v", st)
	}
}

// A ready sandbox whose PID 1 was killed is nobody's: nothing of it is kept.
func TestPooledSandboxThatEnds(t *testing.T) {
	f := newFixture(t)
	dead := f.pooled(t, 1)
	if err := dead.process.kill(); err != nil {
		t.Fatal(err)
	}
	within(t, "the end of what is of no more use", dead.gone)
	f.wantNothingLeft(t)
	if info := f.session(t, plan.CreateRequest{}); info.ID == dead.id || f.pool().Hits != 0 {
		t.Errorf("it was handed out as %s: %+v", info.ID, f.pool())
	}
}
