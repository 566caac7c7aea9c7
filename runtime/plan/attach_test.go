package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/mount"
)

// TestAttachment: a workspace is attached to a sandbox that has none and room for it.
func TestAttachment(t *testing.T) {
	allowed := &mount.Allowed{}
	fits := Attachment{Workspace: WorkspaceRequest{Dir: "/srv/a", Mode: modeCow}, Name: "box", Profile: &Profile{}, Mounts: []MountRequest{{Type: "tmpfs", Target: "/workspaces"}}, Disk: true}
	m, err := fits.Mount(allowed)
	if err != nil || !m.Cow || m.Target != WorkspacePath || m.Source != "/srv/a" || m.WritesHost() {
		t.Fatalf("%+v, %v", m, err)
	}
	for words, tt := range map[string]struct {
		code   sbxerr.Code
		change func(*Attachment)
	}{
		`has the workspace "/srv/b"`:           {sbxerr.Workspace, func(a *Attachment) { a.Have = &WorkspaceRequest{Dir: "/srv/b"} }},
		`has a mount on "/workspace/x"`:        {sbxerr.Workspace, func(a *Attachment) { a.Mounts = []MountRequest{{Target: "/workspace/x"}} }},
		"has no disk":                          {sbxerr.Workspace, func(a *Attachment) { a.Disk = false }},
		"workspace at /workspace alone":        {sbxerr.Workspace, func(a *Attachment) { a.Workspace.Path = "/x" }},
		"none of rw, ro, cow":                  {sbxerr.Workspace, func(a *Attachment) { a.Workspace.Mode = "x" }},
		"part of the host's /etc":              {sbxerr.Workspace, func(a *Attachment) { a.Workspace.Dir = "/etc/x" }},
		`a snapshot "s" at the end`:            {sbxerr.SnapshotWorkspace, func(a *Attachment) { a.SnapshotOnEnd = "s" }},
		"since the profile has isolation none": {sbxerr.Unisolated, func(a *Attachment) { a.Profile = &Profile{Unisolated: &HostUser{}} }},
	} {
		a := fits
		tt.change(&a)
		if _, err := a.Mount(allowed); sbxerr.Of(err) != tt.code || !strings.Contains(err.Error(), words) || sbxerr.RemedyOf(err) == "" {
			t.Errorf("%s: %v", words, err)
		}
	}
	inside := fits
	inside.Workspace.Dir = "/etc/x" // of the calling sandbox
	if _, err := inside.Mount(nil); err != nil {
		t.Error(err)
	}
}

// TestAttachedSpec: the spec has the one workspace, and with it taken back is what it was.
func TestAttachedSpec(t *testing.T) {
	none := &specs.Spec{Mounts: []specs.Mount{{Destination: "/a"}}}
	w := (&WorkspaceRequest{Dir: "/srv/a", Mode: "ro"}).mount()
	for _, disk := range []bool{false, true} {
		before := Attached(none, WorkspacePath, nil, "/s", disk)
		after := Attached(before, WorkspacePath, &w, "/s", disk)
		last := after.Mounts[len(after.Mounts)-1]
		if len(after.Mounts) != 2 || last.Source != "/s/workspace" || !slices.Contains(last.Options, "ro") || HasMount(before, WorkspacePath) != disk {
			t.Errorf("disk %v: %+v, before %+v", disk, after.Mounts, before.Mounts)
		}
		back := Attached(after, WorkspacePath, nil, "/s", disk)
		if len(back.Mounts) != len(before.Mounts) || disk && back.Mounts[1].Source != "/s/disk/workspace" {
			t.Errorf("disk %v: taken back %+v", disk, back.Mounts)
		}
	}
}
