package integration

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// TestAttachWorkspace: a sandbox that lives gets what it would have from the beginning, in each
// mode and with each kind of root, and has it after a restart of the daemon.
//
//caisson:kernel
func TestAttachWorkspace(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "")
	const look = "pwd; cat kept; (echo new >new && cat new) 2>&1; grep -c . /proc/mounts; grep -c ' /workspace ' /proc/mounts; stat -c '%u:%g %a' . kept"
	for i, tt := range []struct {
		mode   string
		flags  []string
		paused bool
	}{
		{"", nil, false},
		{":ro", nil, true},
		{":cow", []string{"--disk", "64M"}, false},
		{":cow", []string{"--rootfs", "rw"}, true},
		{":ro", []string{"--disk", "64M", "--nested", "--cpus", "2", "-m", "256M"}, false},
		{"", []string{"--mount", "type=tmpfs,dst=/data"}, false},
	} {
		dir := workspace(t, 0, 0)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		writeTree(t, dir)
		before := treeText(t, dir)
		d.Run(t, append([]string{"create", "--name", "first", "--workspace", dir + tt.mode}, tt.flags...)...)
		d.Run(t, append([]string{"create", "--name", "live"}, tt.flags...)...)
		d.Run(t, "exec", "-d", "live", "--", "sleep", "1000")
		if r := d.Try("exec", "live", "--", "cat", "/workspace/kept"); r.Code == 0 {
			t.Fatalf("%d: it has the file already", i)
		}
		if tt.paused {
			d.Run(t, "pause", "live")
		}
		d.Run(t, "attach-workspace", "live", dir+tt.mode)
		if out := d.Run(t, "events", "--json", "--filter", "type=sandbox.updated").Stdout; !strings.Contains(out, `"workspace":"`+dir) {
			t.Errorf("%d: events: %s", i, out)
		}
		if tt.paused {
			d.Run(t, "resume", "live")
		}
		got := d.Try("exec", "live", "--", "sh", "-c", look).Stdout
		if err := os.Remove(filepath.Join(dir, "new")); (err == nil) != (tt.mode == "") {
			t.Errorf("%d: the host has the new file: %v", i, err == nil)
		}
		if want := d.Try("exec", "first", "--", "sh", "-c", look).Stdout; got != want || !strings.HasPrefix(got, "/workspace\nkept\n") {
			t.Errorf("%d: %q, and from the beginning %q", i, got, want)
		}
		d.Kill(t)
		d.Launch(t)
		if w := inspect(t, d, "live").Workspace; w == nil || w.Dir != dir {
			t.Errorf("%d: inspect shows %+v", i, w)
		}
		live, first := postureOf(t, d, "live"), postureOf(t, d, "first")
		if !slices.Equal(slices.Sorted(maps.Keys(live)), slices.Sorted(maps.Keys(first))) || len(live) < 20 {
			t.Errorf("%d: posture:\n%v\nfrom the beginning:\n%v", i, live, first)
		}
		if r := d.Run(t, "exec", "live", "--", "cat", "/workspace/kept"); r.Stdout != "kept\n" {
			t.Errorf("%d: after a restart %q", i, r.Stdout)
		}
		if tt.mode == ":cow" {
			if got := d.Run(t, "diff", "--name-only", "live").Stdout; got != "new\n" {
				t.Errorf("%d: it differs in %q", i, got)
			}
			d.Refused(t, "SBX-238", "snapshot", "create", "-o", "json", "live")
		}
		if tt.mode != "" && treeText(t, dir) != before {
			t.Errorf("%d: the host has\n%s", i, treeText(t, dir))
		}
		d.Refused(t, "SBX-104", "attach-workspace", "-o", "json", "live", dir)
		d.Run(t, "restart", "live")
		if w := inspect(t, d, "live").Workspace; w != nil {
			t.Errorf("%d: after caisson restart it has %+v", i, w)
		}
		d.Run(t, "rm", "--force", "live", "first")
		if tt.mode == ":cow" {
			d.Run(t, "discard", "live")
		}
	}
	wantNoDisks(t, d)
}

// TestAttachWorkspaceRefused: what is refused leaves the sandbox as it was.
func TestAttachWorkspaceRefused(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "peers: [{uids: [54321]}]\n")
	dir := workspace(t, 0, 0)
	user := d.User(t, ann)
	box(t, d, "bare")
	box(t, d, "disk", "--disk", "64M")
	box(t, d, "mounts", "--mount", "type=tmpfs,dst=/workspace")
	box(t, d, "ends", "--rootfs", "rw", "--snapshot-on-end", "s")
	user.Run(t, "create", "--name", "hers")
	attach := func(as interface {
		Refused(t testing.TB, code string, args ...string) harness.Failure
	}, code, name, what string) {
		t.Helper()
		as.Refused(t, code, "attach-workspace", "-o", "json", name, what)
	}
	attach(d, "SBX-104", "bare", dir+":cow")
	attach(d, "SBX-104", "bare", "/etc")
	attach(d, "SBX-104", "bare", dir+":/elsewhere")
	attach(d, "SBX-104", "mounts", dir)
	attach(d, "SBX-238", "ends", dir+":cow")
	attach(d, "SBX-805", "hers", dir)
	attach(user, "SBX-805", "hers", dir)
	attach(user, "SBX-107", "bare", dir)
	attach(d, "SBX-107", "absent", dir)
	attach(d, "SBX-801", "bare", dir+":cwo")
	d.Run(t, "exec", "disk", "--", "touch", "own")
	attach(d, "SBX-104", "disk", dir)
	if r := d.Run(t, "exec", "disk", "--", "sh", "-c", "ls; touch more && rm own more"); r.Stdout != "own\n" {
		t.Errorf("after a refusal its workspace has %q", r.Stdout)
	}
	inspect(t, d, "disk")
	d.Run(t, "attach-workspace", "disk", dir+":cow") // nothing is left of the refused one
	inspect(t, d, "disk")
	d.Run(t, "stop", "bare")
	attach(d, "SBX-108", "bare", dir)
	d.Run(t, "rm", "--force", "bare", "disk", "mounts", "ends")
	user.Run(t, "rm", "--force", "hers")
}

// TestAttachWorkspaceToAChild: a sandbox that may enter its child gives it a directory of its own
// workspace, and nothing else of the host. From outside the child is another's.
func TestAttachWorkspaceToAChild(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "profiles: {team: {nested: {enter: true}}}\n")
	for profile, may := range map[string]bool{"team": true, "strict": false} {
		parent := sharing(t, d, profile, shared(t, 4321), "--profile", profile)
		parent.run(t, append([]string{"create", "--name", "child"}, small...)...)
		child := strings.TrimSpace(parent.run(t, "ls", "-q"))
		parent.refused(t, "SBX-805", "attach-workspace", "-o", "json", "child", "/tmp")
		d.Refused(t, "SBX-805", "attach-workspace", "-o", "json", child, workspace(t, 0, 0))
		attach := []string{"attach-workspace", "-o", "json", "child", "/workspace/sub:ro"}
		if !may {
			parent.refused(t, "SBX-805", attach...)
			continue
		}
		parent.run(t, attach...)
		if out := parent.run(t, "exec", "child", "--", "sh", "-c", "cat file; touch new 2>/dev/null || echo refused"); out != "shared\nrefused\n" {
			t.Errorf("the child has %q", out)
		}
	}
}
