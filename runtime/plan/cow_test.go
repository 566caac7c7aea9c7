package plan

import (
	"testing"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// A copy-on-write workspace has a disk, and is never written to on the host.
func TestPlanCow(t *testing.T) {
	ask := func(change func(*Planner, *CreateRequest)) (*Sandbox, error) {
		pl, r := testPlanner(), CreateRequest{Workspace: &WorkspaceRequest{Dir: "/srv/a", Mode: "cow"}}
		pl.DiskBytes = 64 << 20
		change(&pl, &r)
		return pl.Sandbox(r)
	}
	p, err := ask(func(*Planner, *CreateRequest) {})
	if err != nil || p.Limits.DiskBytes != 64<<20 || p.OwnWorkspace || p.WritableRoot || p.Mounts[0].WritesHost() {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err = ask(func(_ *Planner, r *CreateRequest) { r.Limits = &caissonv1.Limits{DiskBytes: new(int64(16 << 20))} }); err != nil || p.Limits.DiskBytes != 16<<20 {
		t.Errorf("with a disk of its own: %+v, %v", p, err)
	}
	if p, err = ask(func(_ *Planner, r *CreateRequest) { r.Workspace.Path = "/srv/a" }); err != nil || !p.OwnWorkspace {
		t.Errorf("at another path: %+v, %v", p, err)
	}
	if _, err := ask(func(_ *Planner, r *CreateRequest) { r.SnapshotOnEnd = "s" }); sbxerr.Of(err) != sbxerr.SnapshotWorkspace {
		t.Errorf("with a snapshot at the end: %v", err)
	}
	full := sbxerr.New(sbxerr.Disk, "test", "no disks")
	if _, err := ask(func(pl *Planner, _ *CreateRequest) { pl.Disk = func(int64) error { return full } }); sbxerr.Of(err) != sbxerr.Disk {
		t.Errorf("without disks: %v", err)
	}
	if p, err = ask(func(_ *Planner, r *CreateRequest) { r.Workspace.Mode = "rw" }); err != nil || p.Limits.DiskBytes != 0 || !p.Mounts[0].WritesHost() {
		t.Errorf("rw: %+v, %v", p, err)
	}
}
