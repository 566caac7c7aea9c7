package runtime

import (
	"context"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/queue"
)

// TestRefusedByTheQueue: what finds no place counts neither against the most
// sandboxes nor against a quota.
func TestRefusedByTheQueue(t *testing.T) {
	f := newFixture(t)
	f.opts.MaxSandboxes, f.making = 1, queue.New(1, 0)
	full, err := f.making.Enter(queue.User{Root: true})
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	f.replace(stage{name: "rootfs", create: f.directory("rootfs", f.paths.rootfs).create, remove: func(context.Context, string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		counted = max(counted, len(f.sandboxes))
		return nil
	}})
	_, err = f.Create(callerContext(t), plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.Busy, "0 requests wait", "sandboxes.queue")
	if counted != 0 {
		t.Errorf("%d sandboxes are counted while one is refused", counted)
	}
	full.Leave()
	f.replace(f.directory("rootfs", f.paths.rootfs))
	f.session(t, plan.CreateRequest{})
	_, err = f.Create(callerContext(t), plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.Busy, "sandboxes.max")
	if f.making.Busy() {
		t.Error("what is one too many keeps its place")
	}
}
