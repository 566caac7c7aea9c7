package runtime

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/idblock"
)

// next is the daemon that comes after f.
func (f *fixture) next(t testing.TB) *fixture {
	t.Helper()
	n := &fixture{dir: f.dir, images: f.images, engine: f.engine}
	n.Manager = &Manager{
		engine: f.engine, images: f.images, log: f.log, paths: f.paths, blocks: f.blocks, host: f.host, opts: f.opts,
		sandboxes: map[string]*sandbox{}, userns: map[idblock.Block]*mount.UserNS{}, lastUse: time.Now(),
		boot: f.boot, making: newGate(0, 0), owners: f.owners, shims: newShims(1), authors: newAuthors(),
	}
	n.leaving, n.handOver = context.WithCancel(context.Background())
	n.Manager.stages = n.allStages()
	n.withoutRoot()
	t.Cleanup(func() { n.end(t) })
	return n
}

// recover has f go on with what is there, and expects as many sandboxes.
func (f *fixture) recover(t testing.TB, want int) {
	t.Helper()
	if known, err := f.Recover(callerContext(t)); err != nil || known != want {
		t.Fatalf("knows %d sandboxes, %v; want %d", known, err, want)
	}
}

// wantEnded checks that the sandbox id has ended, and how its command did.
func (f *fixture) wantEnded(t *testing.T, id string, code int, reason Reason, output string) {
	t.Helper()
	ctx := callerContext(t)
	info, err := f.Wait(ctx, id)
	if err != nil || info.State != StateExited || info.ExitedAt.IsZero() {
		t.Errorf("%+v, %v", info, err)
	}
	e, err := f.WaitExec(ctx, id, "1")
	if err != nil || e.Result.ExitCode != code || e.Result.Reason != reason {
		t.Errorf("its command: %+v, %v", e.Result, err)
	}
	var out bytes.Buffer
	if err := f.Logs(ctx, id, LogOptions{Exec: "1"}, &out, nil); err != nil || out.String() != output {
		t.Errorf("its output: %q, %v", &out, err)
	}
	if r := f.mustFind(t, id).kept(); r.Main != 0 && info.Result != e.Result {
		t.Errorf("the sandbox ended with %+v", info.Result)
	}
}
