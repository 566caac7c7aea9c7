package plan

import (
	"slices"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// A clone is on the sandbox's disk, and has the objects of the host read-only.
func TestPlanClone(t *testing.T) {
	ask := func(change func(*Planner, *CreateRequest)) (*Sandbox, error) {
		pl, r := testPlanner(), CreateRequest{Workspace: &WorkspaceRequest{Dir: "/srv/a", Mode: "clone"}}
		pl.DiskBytes = 64 << 20
		change(&pl, &r)
		return pl.Sandbox(r)
	}
	p, err := ask(func(*Planner, *CreateRequest) {})
	if err != nil || p.Limits.DiskBytes != 64<<20 || !p.OwnWorkspace || p.Cwd != WorkspacePath {
		t.Fatalf("%+v, %v", p, err)
	}
	if m := p.Mounts[0]; len(p.Mounts) != 1 || m.Source != "/srv/a/.git/objects" || m.Target != CloneObjects || m.WritesHost() {
		t.Errorf("mounts %+v", p.Mounts)
	}
	if !slices.Contains(p.MountPoints(), CloneSource[1:]) || !slices.Contains(p.MountPoints(), CloneObjects[1:]) {
		t.Errorf("points %q", p.MountPoints())
	}
	for name, c := range map[string]struct {
		change func(*Planner, *CreateRequest)
		code   sbxerr.Code
	}{
		"another path":            {func(_ *Planner, r *CreateRequest) { r.Workspace.Path = "/srv/a" }, sbxerr.CloneSource},
		"inside of another":       {func(pl *Planner, _ *CreateRequest) { pl.Parent = &ParentNetwork{} }, sbxerr.CloneSource},
		"from a snapshot":         {func(_ *Planner, r *CreateRequest) { r.From = "s" }, sbxerr.CloneSource},
		"a snapshot at the end":   {func(_ *Planner, r *CreateRequest) { r.SnapshotOnEnd = "s" }, sbxerr.SnapshotWorkspace},
		"a mount there too":       {func(_ *Planner, r *CreateRequest) { r.Mounts = []MountRequest{{Type: "tmpfs", Target: WorkspacePath}} }, sbxerr.Config},
		"a directory of nobody's": {func(_ *Planner, r *CreateRequest) { r.Workspace.Dir = "/etc" }, sbxerr.Workspace},
	} {
		if _, err := ask(c.change); sbxerr.Of(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := &WorkspaceRequest{Dir: "/srv/a", Mode: "clone"}
	for name, err := range map[string]error{"diff": w.CheckCow("s"), "snapshot": w.CheckSnapshot("test", "s")} {
		if sbxerr.RemedyOf(err) == "" {
			t.Errorf("%s: %v without a remedy", name, err)
		}
	}
	if _, err := (Attachment{Workspace: *w, Name: "s", Disk: true}).Mount(nil); sbxerr.Of(err) != sbxerr.Workspace {
		t.Errorf("attached to a live sandbox: %v", err)
	}
}
