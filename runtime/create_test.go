package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/plan"
)

// ledger records what is done to stages, and injects failures.
type ledger struct {
	mu           sync.Mutex
	done         []string
	failOnCreate string
	failOnRemove string
}

func (j *ledger) add(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done = append(j.done, what)
}

// watch puts j around every stage of f.
func (j *ledger) watch(f *fixture) {
	for i, st := range f.Manager.stages {
		create, remove := st.create, st.remove
		f.Manager.stages[i].create = func(ctx context.Context, s *sandbox) error {
			if err := create(ctx, s); err != nil {
				return err
			}
			j.add("create " + st.name)
			if st.name == j.failOnCreate { // after its side effect: the worst moment
				return errInjected
			}
			return nil
		}
		if remove == nil {
			continue
		}
		f.Manager.stages[i].remove = func(ctx context.Context, id string) error {
			j.add("remove " + st.name)
			if st.name == j.failOnRemove {
				return errInjected
			}
			return remove(ctx, id)
		}
	}
}

// removals is the order in which everything is removed.
func removals(stages []stage) []string {
	var want []string
	for _, st := range slices.Backward(stages) {
		if st.remove != nil {
			want = append(want, "remove "+st.name)
		}
	}
	return want
}

func (j *ledger) removed() []string {
	return slices.DeleteFunc(slices.Clone(j.done), func(s string) bool { return strings.HasPrefix(s, "create ") })
}

func stageNames(t *testing.T) []string {
	var names []string
	for _, st := range newFixture(t).Manager.stages {
		names = append(names, st.name)
	}
	return names
}

func TestCreateFailsAtEachStageAndLeavesNothing(t *testing.T) {
	for _, name := range stageNames(t) {
		for _, detached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s detached=%v", name, detached), func(t *testing.T) {
				f := newFixture(t)
				j := &ledger{failOnCreate: name}
				j.watch(f)
				var err error
				if detached {
					_, err = f.Start(callerContext(t), request("exit:0"))
				} else {
					_, err = f.Run(callerContext(t), request("exit:0"), IO{})
				}
				if !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "create "+name+" of sandbox ") {
					t.Errorf("error %v, want the injected one, with its stage", err)
				}
				if got, want := j.removed(), removals(f.Manager.stages); !slices.Equal(got, want) {
					t.Errorf("removed %q,\nwant %q", got, want)
				}
				if list, _ := f.List(callerContext(t)); len(list) > 0 {
					t.Errorf("still listed: %+v", list)
				}
				if _, idle := f.IdleSince(); !idle {
					t.Error("the manager is not idle")
				}
				f.wantNothingLeft(t)
			})
		}
	}
}

func TestCreateReportsFailuresOfItsOwnCleanup(t *testing.T) {
	f := newFixture(t)
	j := &ledger{failOnCreate: "container", failOnRemove: "rootfs"}
	j.watch(f)
	_, err := f.Run(callerContext(t), request("exit:0"), IO{})
	for _, want := range []string{"create container of sandbox", "remove rootfs of sandbox"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	j.failOnRemove = ""
	if _, err := f.Cleanup(callerContext(t), false); err != nil {
		t.Error(err)
	}
}

func TestCreateStopsWithItsCaller(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancelCause(callerContext(t))
	gone := errors.New("the caller went home")
	f.replace(stage{name: "start", create: func(ctx context.Context, s *sandbox) error {
		cancel(gone)
		return ctx.Err()
	}})
	_, err := f.Run(ctx, request("exit:0"), IO{})
	if !errors.Is(err, gone) {
		t.Errorf("error %v does not hold the cause", err)
	}
	errtest.Want(t, err, sbxerr.Canceled, "create start of sandbox")
	f.wantNothingLeft(t)
}

// Who asked for a sandbox that another call removed meanwhile reads that, whatever
// broke down in between.
func TestCreateOfOneThatIsRemovedMeanwhile(t *testing.T) {
	f := newFixture(t)
	f.replace(stage{name: "start", create: func(ctx context.Context, s *sandbox) error {
		go func() { _, _ = f.Remove(callerContext(t), s.id, true) }()
		<-ctx.Done()
		return sbxerr.Wrap(sbxerr.Engine, "ctrd.start", fmt.Errorf("%w (shim is gone)", context.Cause(ctx)))
	}})
	_, err := f.Create(callerContext(t), plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.Canceled, "the sandbox was removed", "shim is gone")
}

// A creation has as long as the configuration says, and leaves nothing.
func TestTimeToCreate(t *testing.T) {
	f := newFixture(t)
	f.opts.Timeouts.Create = 20 * time.Millisecond
	f.replace(stage{name: "start", create: func(ctx context.Context, _ *sandbox) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	_, err := f.Create(callerContext(t), plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.Deadline, "not ready within 20ms (timeouts.create)")
	f.wantNothingLeft(t)
}

func TestStageErrorKeepsTheCauseOnce(t *testing.T) {
	s := &sandbox{id: "x"}
	live := callerContext(t)
	errtest.Want(t, stageError(live, "rootfs", s, sbxerr.New(sbxerr.Overlay, "op", "no")), sbxerr.Overlay, "create rootfs of sandbox x")
	late, cancel := context.WithCancelCause(live)
	cancel(sbxerr.New(sbxerr.Deadline, "op", "it was not ready within a minute"))
	err := stageError(late, "rootfs", s, errInjected)
	errtest.Want(t, err, sbxerr.Deadline, "not ready within", "injected")
	if again := stageError(late, "rootfs", s, err); strings.Count(again.Error(), "not ready within") != 1 {
		t.Errorf("the cause is told twice: %v", again)
	}
}

func TestNotWhatWasDeclaredIsRefused(t *testing.T) {
	f := newFixture(t)
	f.replace(stage{name: "posture", create: f.checkPosture}) // the fake PID 1 is not confined at all
	_, err := f.Run(callerContext(t), request("exit:0"), IO{})
	errtest.Want(t, err, sbxerr.Posture, "create posture of sandbox", "is not a namespace", "cgroup memory.max")
	f.wantNothingLeft(t)
}

// TestRemoveGoesOnPastFailures fails the removal of each stage once. What is
// gone must be gone, what guards the rest must stay, and a second removal must
// succeed.
func TestRemoveGoesOnPastFailures(t *testing.T) {
	guards := []string{"claim", "ids"}
	for i, name := range stageNames(t) {
		f := newFixture(t)
		if f.Manager.stages[i].remove == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			j := &ledger{failOnRemove: name}
			j.watch(f)
			info, err := f.Start(callerContext(t), request("out:hello", "hang"))
			if err != nil {
				t.Fatal(err)
			}
			j.done = nil
			id, err := f.Remove(callerContext(t), info.Name, true)
			if !errors.Is(err, errInjected) || id != info.ID {
				t.Errorf("removed %q, %v, want the injected error", id, err)
			}
			for k, st := range f.Manager.stages {
				want := st.remove != nil && (k >= i || !slices.Contains(guards, st.name))
				if got := slices.Contains(j.removed(), "remove "+st.name); got != want {
					t.Errorf("stage %s: removed %v, want %v", st.name, got, want)
				}
			}
			j.failOnRemove, j.done = "", nil
			left, err := f.Cleanup(callerContext(t), false)
			if err != nil || len(left) != 1 || left[0].ID != info.ID || !left[0].Removed {
				t.Errorf("cleanup: %+v, %v", left, err)
			}
			if got, want := j.removed(), removals(f.Manager.stages); !slices.Equal(got, want) {
				t.Errorf("the second time removed %q,\nwant %q", got, want)
			}
			f.wantNothingLeft(t)
		})
	}
}
