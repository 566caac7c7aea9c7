package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
)

const (
	idContainer = "cccc2222222222222222222222"
	idCgroup    = "dddd2222222222222222222222"
	idOutput    = "eeee2222222222222222222222"
	idEverycase = "ffff2222222222222222222222"
)

// leave puts what a killed daemon would leave in each of the places, and what
// is not a daemon's beside it.
func (f *fixture) leave(t *testing.T) (foreign []string) {
	t.Helper()
	f.engine.containers[idContainer], f.engine.containers[idEverycase] = nil, nil
	f.engine.containers["moby"] = nil
	dirs := []string{
		f.paths.sandbox(idA1), f.paths.rootfs(idA1), f.paths.netns(idA1), f.paths.sandbox(idEverycase),
		filepath.Join(f.engine.cgroups, idCgroup), filepath.Join(f.engine.cgroups, idEverycase),
		f.paths.output(idOutput), f.paths.output(idEverycase),
	}
	foreign = []string{
		f.paths.sandbox("not-an-id"), f.paths.sandbox(idA1 + "2"), f.paths.sandbox("AAAA2222222222222222222222"),
		filepath.Join(f.engine.cgroups, "system.slice"), f.paths.output("aaaa0000000000000000000000"),
	}
	for _, dir := range slices.Concat(dirs, foreign) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.blocks.Claim(idA1); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{f.paths.record(idA1), f.paths.record(idA1) + ".new", f.paths.stdout(idOutput, 1)} {
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.images.Kept = append(f.images.Kept, "chain-gone")
	return foreign
}

func TestCleanup(t *testing.T) {
	f := newFixture(t)
	live := f.start(t, request("hang"))
	foreign := f.leave(t)

	want := []Leftover{
		{Kind: "sandbox", ID: idA1, Reason: "its daemon ended before it"},
		{Kind: "sandbox", ID: idEverycase, Reason: "its daemon ended before it"},
		{Kind: "container", ID: idContainer, Reason: "no sandbox has it"},
		{Kind: "cgroup", ID: idCgroup, Reason: "no sandbox has it"},
		{Kind: "output", ID: idOutput, Reason: "no sandbox has it"},
		{Kind: "snapshot", ID: "chain-gone", Reason: "no image and no sandbox needs it"},
	}
	for _, path := range []string{foreign[2], foreign[1], foreign[0], foreign[4]} { // of another group nothing is said
		want = append(want, Leftover{Kind: "foreign", ID: path, Reason: "the daemon did not make it: look at it and remove it by hand"})
	}
	for range 2 { // a dry run removes nothing, so the second finds the same
		if got, err := f.Cleanup(callerContext(t), true); err != nil || !slices.Equal(got, want) {
			t.Fatalf("dry run: %+v, %v\nwant %+v", got, err, want)
		}
	}
	for i, l := range want {
		want[i].Removed = l.Kind != "foreign"
	}
	if got, err := f.Cleanup(callerContext(t), false); err != nil || !slices.Equal(got, want) {
		t.Errorf("cleanup: %+v, %v\nwant %+v", got, err, want)
	}
	if got, err := f.Cleanup(callerContext(t), false); err != nil || !slices.Equal(got, want[6:]) {
		t.Errorf("a second cleanup: %+v, %v", got, err)
	}
	for _, dir := range foreign {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("what is not the daemon's: %v", err)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}
	if ids, _ := f.engine.Containers(callerContext(t)); !slices.Equal(ids, slices.Sorted(slices.Values([]string{live.ID, "moby"}))) {
		t.Errorf("containers %v", ids)
	}
	delete(f.engine.containers, "moby")
	if info := f.mustFind(t, live.ID).info(); info.State != StateRunning {
		t.Errorf("the live sandbox: %+v", info)
	}
	if !slices.Contains(f.images.Kept, "chain-base") {
		t.Error("the view of an image is gone")
	}
}

// TestCleanupOfWhatEnded: what an ended sandbox does not keep, and what was not freed
// with its end, goes without it.
func TestCleanupOfWhatEnded(t *testing.T) {
	for name, restarted := range map[string]bool{"by its daemon": false, "by the next one": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			ctx := callerContext(t)
			f.engine.fail = map[string]error{"delete": errInjected}
			id := f.start(t, request("out:told", "exit:3")).ID
			f.over(t, id)
			f.engine.fail = nil
			if restarted {
				f.KeepOnExit()
				if err := f.drain(ctx); err != nil {
					t.Error(err)
				}
				f = f.next(t)
				f.recover(t, 1)
			}
			f.engine.fail = map[string]error{"delete": errInjected}
			if got, err := f.Settle(ctx); err != nil || len(got) != 1 || got[0].Removed {
				t.Errorf("a daemon that is to serve all the same: %+v, %v", got, err)
			}
			if got, err := f.Cleanup(ctx, false); !errors.Is(err, errInjected) || len(got) != 1 || got[0].Removed {
				t.Errorf("a cleanup that cannot: %+v, %v", got, err)
			}
			f.engine.fail = nil
			for _, removed := range []bool{false, true} {
				want := []Leftover{{Kind: "remains", ID: id, Reason: "its sandbox has ended, and stays with its output only", Removed: removed}}
				if got, err := f.Cleanup(ctx, !removed); err != nil || !slices.Equal(got, want) {
					t.Errorf("cleanup: %+v, %v", got, err)
				}
			}
			if got, err := f.Cleanup(ctx, false); err != nil || len(got) > 0 {
				t.Errorf("a second cleanup: %+v, %v", got, err)
			}
			held, err := f.blocks.Held(id)
			if containers, _ := f.engine.Containers(ctx); err != nil || len(held)+len(containers) > 0 {
				t.Errorf("it holds %v, and there are %v, %v", held, containers, err)
			}
			f.wantEnded(t, id, 3, ReasonExited, "told")
			if _, err := f.Remove(ctx, id, false); err != nil {
				t.Error(err)
			}
			f.wantNothingLeft(t)
		})
	}
}

func (f *fixture) mustFind(t *testing.T, ref string) *sandbox {
	t.Helper()
	s, err := f.find(callerContext(t), ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCleanupGoesOnPastFailures(t *testing.T) {
	f := newFixture(t)
	for _, id := range []string{idA1, idA2} {
		if err := os.Mkdir(f.paths.sandbox(id), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(f.paths.sandbox(idA1), "unknown"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := f.Cleanup(callerContext(t), false)
	errtest.Want(t, err, sbxerr.StateDir, "remove claim of sandbox "+idA1)
	if len(got) != 2 || got[0].Removed || !got[1].Removed {
		t.Errorf("cleanup: %+v", got)
	}
	if err := os.RemoveAll(f.paths.sandbox(idA1)); err != nil {
		t.Error(err)
	}
}

// TestCleanupTwiceAtOnce: each leftover is removed by one of them.
func TestCleanupTwiceAtOnce(t *testing.T) {
	f := newFixture(t)
	f.engine.containers[idContainer] = nil
	var removing, removed atomic.Int32
	stages := f.Manager.stages
	begin := slices.IndexFunc(stages, func(st stage) bool { return st.name == "container" }) // where removal begins
	remove := stages[begin].remove
	stages[begin].remove = func(ctx context.Context, id string) error {
		if removing.Add(1) > 1 {
			t.Error("two remove the same")
		}
		defer removing.Add(-1)
		removed.Add(1)
		goruntime.Gosched()
		return remove(ctx, id)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := f.Cleanup(callerContext(t), false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := removed.Load(); n != 1 {
		t.Errorf("removed %d times", n)
	}
}

// TestCleanupWithoutAllItsSources still removes what the others show.
func TestCleanupWithoutAllItsSources(t *testing.T) {
	f := newFixture(t)
	f.engine.fail = map[string]error{"containers": errInjected}
	f.images.Fail = map[string]error{"views": errInjected}
	if err := os.Mkdir(f.paths.sandbox(idA1), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := f.Cleanup(callerContext(t), false)
	if !errors.Is(err, errInjected) || len(got) != 1 || !got[0].Removed {
		t.Errorf("cleanup: %+v, %v", got, err)
	}
	f.images.Fail = map[string]error{"list": errInjected}
	if _, err := f.Cleanup(callerContext(t), true); !errors.Is(err, errInjected) {
		t.Errorf("without the list of images: %v", err)
	}
	f.engine.fail = nil
}

// TestQuarantine: what cannot be removed keeps no daemon from serving; its doctor tells
// of it until a cleanup succeeds.
func TestQuarantine(t *testing.T) {
	f := newFixture(t)
	f.Manager.opts.Doctor = func(context.Context) ([]Check, error) { return nil, nil }
	stuck, junk, claim := filepath.Join(f.paths.sandbox(idA1), "unknown"), f.paths.sandbox("junk"), filepath.Join(f.paths.ids(), "junk")
	if err := os.MkdirAll(stuck, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{junk, claim} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(f.paths.sandbox(idA2), 0o755); err != nil {
		t.Fatal(err)
	}
	found, err := f.Settle(callerContext(t))
	if err != nil || len(found) != 4 || found[0].Removed || !found[1].Removed {
		t.Fatalf("a daemon that is to serve all the same: %+v, %v", found, err)
	}
	checks, err := f.Doctor(callerContext(t))
	var told []string
	for _, c := range checks {
		told = append(told, c.Status+" "+c.Code+" "+c.Detail)
	}
	for _, path := range []string{f.paths.sandbox(idA1), junk, claim} {
		if !slices.ContainsFunc(told, func(s string) bool {
			return strings.HasPrefix(s, "warn SBX-610 ") && strings.Contains(s, " at "+path+": ")
		}) {
			t.Errorf("the doctor does not tell of %s: %q, %v", path, told, err)
		}
	}
	for _, path := range []string{stuck, junk, claim} {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.Cleanup(callerContext(t), false); err != nil {
		t.Error(err)
	}
	if checks, err := f.Doctor(callerContext(t)); err != nil || len(checks) > 0 {
		t.Errorf("after a cleanup: %+v, %v", checks, err)
	}
}
