package runtime

import (
	"context"
	"io"
	"strings"
	"testing"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// ended makes a sandbox for ctx's caller that has ended and stays.
func (f *fixture) ended(t *testing.T, ctx context.Context) string {
	t.Helper()
	info, err := f.Start(ctx, request("exit:0"))
	if err == nil {
		_, err = f.Wait(ctx, info.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// TestEndedSandboxesCount: they take no place among those that live, and there may be four for each
// of these.
func TestEndedSandboxesCount(t *testing.T) {
	quota := peer.DefaultQuota()
	quota.Sandboxes, quota.MemoryBytes = 1, plan.DefaultLimits().MemoryBytes
	for who, caller := range map[string]func(*fixture) context.Context{
		"a peer": func(f *fixture) context.Context { return f.peerWith(t, quota) },
		"a child": func(f *fixture) context.Context {
			ctx := f.inside(t, callerContext(t))
			c, _ := peer.FromContext(ctx)
			s := f.sandboxes[c.Sandbox]
			s.update(func() { s.record.Nested.Sandboxes = 1 })
			return ctx
		},
		"root": func(f *fixture) context.Context {
			f.opts.MaxSandboxes = 1
			return callerContext(t)
		},
	} {
		f := newFixture(t)
		ctx := caller(f)
		first := f.ended(t, ctx)
		for range peer.KeptEnded - 1 {
			f.ended(t, ctx)
		}
		if who != "root" {
			f.pooled(t, 1)
		}
		for range 2 { // one of the pool is refused like a new one
			_, err := f.Create(ctx, plan.CreateRequest{})
			errtest.Want(t, err, sbxerr.Busy, "4 sandboxes have ended and were not removed")
			if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, "caisson rm") {
				t.Errorf("%s: the remedy is %q", who, remedy)
			}
		}
		if _, err := f.Remove(ctx, first, false); err != nil {
			t.Error(err)
		}
		if _, err := f.Create(ctx, plan.CreateRequest{}); err != nil {
			t.Errorf("%s: where one was removed: %v", who, err)
		}
		_, err := f.Create(ctx, plan.CreateRequest{})
		errtest.Want(t, err, sbxerr.Busy) // this one lives
	}
}

// TestRunsThatAreOverDoNotCount: one that its caller has had goes by itself, and is
// not in the way of the next while it does.
func TestRunsThatAreOverDoNotCount(t *testing.T) {
	f := newFixture(t)
	quota := peer.DefaultQuota()
	quota.Sandboxes = 1
	ctx := f.peerWith(t, quota)
	f.engine.deleting.Lock()
	for range 3 {
		if r, err := f.Run(ctx, request("out:x", "exit:0"), IO{}); err != nil || r.ExitCode != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if n := len(f.all()); n != 3 {
		t.Errorf("%d sandboxes are being removed", n)
	}
	f.engine.deleting.Unlock()
}

// TestRunsThatAreReadCount: what somebody reads of them keeps them, whichever command
// wrote it.
func TestRunsThatAreReadCount(t *testing.T) {
	f := newFixture(t)
	quota := peer.DefaultQuota()
	quota.Sandboxes = 1
	ctx := f.peerWith(t, quota)
	over := make(chan error, 1)
	go func() {
		_, err := f.Run(ctx, plan.Request{Create: plan.CreateRequest{Name: "r"}, Exec: plan.ExecRequest{Args: []string{"await:10", "exit:0"}}}, IO{})
		over <- err
	}()
	eventually(t, "it runs", func() bool {
		infos, err := f.List(ctx)
		return err == nil && len(infos) == 1 && infos[0].State == StateRunning && infos[0].Execs == 1
	})
	second, err := f.StartExec(ctx, "r", script("out:x", "exit:0"))
	if err != nil {
		t.Fatal(err)
	}
	reads, read := make(chan struct{}), make(chan struct{})
	go func() {
		_ = f.Logs(ctx, "r", LogOptions{Exec: second.ID, Follow: true}, writer(func([]byte) { close(reads); <-read }), io.Discard)
	}()
	within(t, "its reader", reads)
	f.engine.poke(t, f.all()[0].id)
	if err := <-over; err != nil {
		t.Error(err)
	}
	_, err = f.Create(ctx, plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.Busy, "sandboxes 1 is above the 0 left")
	close(read)
	eventually(t, "it goes", func() bool { return len(f.all()) == 0 })
}

// TestEndedChildrenGo: what a sandbox made goes with it, also what had ended before.
func TestEndedChildrenGo(t *testing.T) {
	f := newFixture(t)
	inside := f.inside(t, callerContext(t))
	c, _ := peer.FromContext(inside)
	parent := c.Sandbox
	child := f.sandboxes[f.ended(t, inside)]
	if _, err := f.Remove(callerContext(t), parent, true); err != nil {
		t.Fatal(err)
	}
	within(t, "the end of the child", child.gone)
	f.wantNothingLeft(t)
}

// TestLastSandboxesAreRoots: neither peers nor the commands in sandboxes nor pools
// take the last of all, whatever their quotas are.
func TestLastSandboxesAreRoots(t *testing.T) {
	f := newFixture(t)
	f.opts.MaxSandboxes, f.opts.ForRoot = 3, 1
	user := f.peer(t)
	inside := f.inside(t, callerContext(t))
	f.session(t, plan.CreateRequest{})
	for who, ctx := range map[string]context.Context{"a peer": user, "a child": inside, "a pool": peer.NewContext(t.Context(), peer.System)} {
		_, err := f.Create(ctx, plan.CreateRequest{})
		errtest.Want(t, err, sbxerr.Busy, "there are 2 sandboxes, and the last 1 of 3 (sandboxes.max) are for root")
		if sbxerr.Of(err) != sbxerr.Busy {
			t.Errorf("%s: %v", who, err)
		}
	}
	f.session(t, plan.CreateRequest{})
	_, err := f.Create(callerContext(t), plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.Busy, "which is the most")
}

// The processes of all sandboxes of a user count together, those that a live one is
// given later too, and no process may have more open files than the ceiling.
func TestProcessesAndFilesOfAPeer(t *testing.T) {
	f := newFixture(t)
	quota := peer.DefaultQuota()
	quota.PIDs = 300
	ctx := f.peerWith(t, quota)
	info, err := f.Create(ctx, plan.CreateRequest{Name: "first", Limits: &caissonv1.Limits{Pids: new(int64(200))}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Create(ctx, plan.CreateRequest{Limits: &caissonv1.Limits{Pids: new(int64(101))}})
	errtest.Want(t, err, sbxerr.Busy, "pids 101 is above the 100 left", "200 of 300")
	if _, err := f.Update(ctx, info.ID, UpdateRequest{Limits: &caissonv1.Limits{Pids: new(int64(100))}}); err != nil {
		t.Error(err)
	}
	if _, err := f.Create(ctx, plan.CreateRequest{Limits: &caissonv1.Limits{Pids: new(int64(150))}}); err != nil {
		t.Error(err)
	}
	_, err = f.Update(ctx, info.ID, UpdateRequest{Limits: &caissonv1.Limits{Pids: new(int64(200))}})
	errtest.Want(t, err, sbxerr.Busy, "pids 100 is above the 50 left", "250 of 300")
	_, err = f.Create(ctx, plan.CreateRequest{Limits: &caissonv1.Limits{Pids: new(int64(16)), OpenFiles: new(int64(4097))}})
	errtest.Want(t, err, sbxerr.Peer, "open files 4097 is above the ceiling 4096")
}
