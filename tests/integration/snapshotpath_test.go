package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// lookAtTree prints what a directory has of all kinds: content, owners, modes, links and times.
const lookAtTree = "cd $1 && find . | sort; cat sub/f l; stat -c '%n %u:%g %a' .; stat -c '%n %u:%g %a %h %Y' sub sub/f g pipe"

const growTree = "mkdir -p $1/sub && cd $1 && echo one >sub/f && ln sub/f g && ln -s sub/f l && chown 7:8 sub/f && chmod 4640 sub/f && chmod 7711 sub" +
	" && mkfifo -m 620 pipe && mkdir -p \"odd name\" && : >\"odd name/$(printf 'b\\377d')\" && touch -d @1000000000 sub/f sub ."

// TestSnapshotOfPath: sandboxes that mount a snapshot of a directory find there what it was, and each
// writes to it for itself. It outlives the sandbox, its snapshot, and the daemon that mounted it.
//
//caisson:kernel
func TestSnapshotOfPath(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	for _, tt := range []struct{ path, flags string }{
		{"/opt/deps", "--rootfs rw"}, {"/workspace/deps", "--disk 32M"}, {"/workspace", "--rootfs rw"},
	} {
		d.Run(t, append([]string{"create", "--name", "a", "--profile", "dev", "--user", "root"}, strings.Fields(tt.flags)...)...)
		d.Run(t, "exec", "a", "--", "sh", "-c", growTree, "-", tt.path)
		want := d.Run(t, "exec", "a", "--", "sh", "-c", lookAtTree, "-", tt.path).Stdout
		if got := d.Run(t, "snapshot", "create", "a", "--name", "deps", "--path", tt.path).Stdout; got != "deps\n" {
			t.Errorf("printed %q", got)
		}
		d.Run(t, "exec", "a", "--", "rm", "-r", filepath.Join(tt.path, "sub"))
		d.Run(t, "rm", "--force", "a")
		if out := d.Run(t, "snapshot", "ls").Stdout; !strings.Contains(out, tt.path) {
			t.Errorf("list: %s", out)
		}
		mounted := "type=snapshot,src=deps,dst=/srv/deps"
		d.Run(t, "create", "--name", "b", "--profile", "dev", "--user", "root", "--mount", mounted)
		d.Run(t, "create", "--name", "c", "--profile", "dev", "--user", "root", "--rootfs", "rw", "--mount", mounted)
		for _, name := range []string{"b", "c"} {
			if got := d.Run(t, "exec", name, "--", "sh", "-c", lookAtTree, "-", "/srv/deps").Stdout; got != want {
				t.Errorf("%s of %s:\n%s\nwant:\n%s", name, tt.path, got, want)
			}
		}
		d.Run(t, "exec", "b", "--", "sh", "-c", "cd /srv/deps && echo two >>sub/f && rm g && mv sub moved && touch new")
		if got := d.Run(t, "exec", "c", "--", "sh", "-c", lookAtTree, "-", "/srv/deps").Stdout; got != want {
			t.Errorf("another sandbox sees what was written:\n%s", got)
		}
		d.Run(t, "snapshot", "rm", "deps")
		d.Kill(t)
		d.Launch(t)
		if got := d.Run(t, "exec", "b", "--", "sh", "-c", "cd /srv/deps; ls; cat moved/f; find . >/dev/null && echo all").Stdout; got != "l\nmoved\nnew\nodd name\npipe\none\ntwo\nall\n" {
			t.Errorf("after the daemon was killed: %q", got)
		}
		inspect(t, d, "b") // with its posture
		d.Run(t, "rm", "--force", "b", "c")
	}
	wantNoDisks(t, d)
}

// TestSnapshotOfPathArchive: a snapshot of a directory comes along in an archive.
func TestSnapshotOfPathArchive(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root", "--rootfs", "rw")
	d.Run(t, "exec", "a", "--", "sh", "-c", "mkdir /opt/deps && echo one >/opt/deps/f && chown 7:8 /opt/deps/f")
	d.Run(t, "snapshot", "create", "a", "--name", "deps", "--path", "/opt/deps")
	archive := d.Run(t, "snapshot", "export", "deps", "-").Stdout
	d.Run(t, "snapshot", "rm", "deps")
	if r := d.TryWith(archive, "snapshot", "import", "-"); r.Stdout != "deps\n" {
		t.Fatalf("import: %+v", r)
	}
	if got := d.Run(t, "run", "--profile", "dev", "--user", "root", "--mount", "type=snapshot,src=deps,dst=/d", "--", "sh", "-c", "cat /d/f; stat -c %u:%g /d/f").Stdout; got != "one\n7:8\n" {
		t.Errorf("in a sandbox with it: %q", got)
	}
	d.Run(t, "rm", "--force", "a")
	d.Run(t, "snapshot", "rm", "deps")
	wantNoDisks(t, d)
}

// TestSnapshotOfPathRefused: what cannot be told exactly is refused and named, and leaves nothing.
func TestSnapshotOfPathRefused(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	dir := workspace(t, 0, 0)
	d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root", "--rootfs", "rw", "--workspace", dir, "--mount", "type=volume,src=v,dst=/opt/app/vol")
	d.Run(t, "exec", "a", "--", "sh", "-c", "mkdir /opt/deps && echo one >/opt/deps/f && ln -s /opt/deps /opt/link && touch /opt/deps/.whole && mkdir /opt/marked && : >/opt/marked/.wh.f")
	for path, tt := range map[string]struct{ code, want string }{
		"/":              {"SBX-253", "below /"},
		"opt":            {"SBX-253", "clean absolute"},
		"/opt/../etc":    {"SBX-253", "clean absolute"},
		"/opt/absent":    {"SBX-253", "does not exist"},
		"/opt/deps/f":    {"SBX-253", "is no directory"},
		"/opt/link":      {"SBX-253", "symbolic link"},
		"/opt/link/sub":  {"SBX-253", "symbolic link"},
		"/workspace":     {"SBX-253", `lies in the mount on "/workspace"`},
		"/workspace/sub": {"SBX-253", `lies in the mount on "/workspace"`},
		"/tmp/x":         {"SBX-253", `lies in the mount on "/tmp"`},
		"/proc/1":        {"SBX-253", `lies in the mount on "/proc"`},
		"/opt/app":       {"SBX-253", `holds the mount on "/opt/app/vol"`},
		"/opt/marked":    {"SBX-249", ".wh.f"},
	} {
		if f := d.Refused(t, tt.code, "snapshot", "create", "a", "--name", "no", "--path", path, "-o", "json"); !strings.Contains(f.Error.Message, tt.want) {
			t.Errorf("%s: %s", path, f.Error.Message)
		}
	}
	d.Run(t, "snapshot", "create", "a", "--name", "deps", "--path", "/opt/deps")
	d.Run(t, "snapshot", "create", "a", "--name", "whole")
	names := func(want string, args ...string) {
		t.Helper()
		if f := d.Refused(t, "SBX-246", append(args, "-o", "json")...); !strings.Contains(f.Error.Remedy, want) {
			t.Errorf("%v: remedy %q", args, f.Error.Remedy)
		}
	}
	names("--mount type=snapshot,src=deps,dst=/opt/deps", "create", "--from", "deps")
	names("--mount type=snapshot,src=deps,dst=/opt/deps", "rewind", "a", "deps")
	names("caisson create --from whole", "create", "--mount", "type=snapshot,src=whole,dst=/d")
	d.Refused(t, "SBX-235", "create", "-o", "json", "--mount", "type=snapshot,src=absent,dst=/d")
	user := d.User(t, ann)
	user.Refused(t, "SBX-235", "create", "-o", "json", "--mount", "type=snapshot,src=0+deps,dst=/d")
	d.Run(t, "create", "--name", "b", "--mount", "type=snapshot,src=deps,dst=/d")
	names("caisson create --from whole", "rewind", "b", "whole") // whose root cannot be written to
	d.Run(t, "rm", "--force", "a", "b")
	d.Run(t, "snapshot", "rm", "deps", "whole")
	wantNoDisks(t, d)
}

// TestAttachSnapshot: a sandbox that lives gets the directory of a snapshot, with each kind of root and
// below each kind of mount, and has it after a restart of the daemon.
//
//caisson:kernel
func TestAttachSnapshot(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root")
	d.Run(t, "exec", "a", "--", "sh", "-c", growTree, "-", "/opt/deps")
	want := d.Run(t, "exec", "a", "--", "sh", "-c", lookAtTree, "-", "/opt/deps").Stdout
	d.Run(t, "snapshot", "create", "a", "--name", "deps", "--path", "/opt/deps")
	for i, tt := range []struct {
		at     string
		flags  []string
		paused bool
	}{
		{"/opt/deps", []string{"--profile", "dev", "--user", "root"}, false},
		{"/workspace/node_modules", []string{"--workspace", workspace(t, 0, 0), "--disk", "32M"}, false},
		{"/workspace/node_modules", []string{"--workspace", workspace(t, 0, 0) + ":cow"}, true},
		{"/workspace/node_modules", []string{"--disk", "32M"}, false},
		{"/data/deps", []string{"--disk", "32M", "--mount", "type=volume,src=v,dst=/data", "--cache", "npm"}, false},
	} {
		d.Run(t, append([]string{"create", "--name", "live"}, tt.flags...)...)
		f := d.Refused(t, "SBX-104", "attach-snapshot", "-o", "json", "live", "deps:"+tt.at)
		if !strings.Contains(f.Error.Remedy, "make it first") {
			t.Errorf("%d: no directory: %+v", i, f.Error)
		}
		d.Run(t, "exec", "live", "--", "mkdir", "-p", tt.at)
		before := postureOf(t, d, "live")
		d.Run(t, "exec", "-d", "live", "--", "sleep", "1000")
		if tt.paused {
			d.Run(t, "pause", "live")
		}
		d.Run(t, "attach-snapshot", "live", "deps:"+tt.at)
		if out := d.Run(t, "events", "--json", "--filter", "type=sandbox.updated").Stdout; !strings.Contains(out, `"source":"deps","target":"`+tt.at+`"`) {
			t.Errorf("%d: events: %s", i, out)
		}
		if tt.paused {
			d.Run(t, "resume", "live")
		}
		if got := d.Try("exec", "live", "--", "sh", "-c", lookAtTree, "-", tt.at).Stdout; i == 0 && got != want {
			t.Errorf("%d:\n%s\nwant:\n%s", i, got, want)
		}
		if got := d.Run(t, "exec", "live", "--", "stat", "-c", "%u:%g %a", tt.at+"/sub/f").Stdout; got != "7:8 4640\n" {
			t.Errorf("%d: %q", i, got)
		}
		d.Kill(t)
		d.Launch(t)
		if after := postureOf(t, d, "live"); len(after) <= len(before) {
			t.Errorf("%d: posture without it: %v, and with it: %v", i, before, after)
		}
		if got := d.Try("exec", "live", "--", "cat", tt.at+"/g").Stdout; i == 0 && got != "one\n" {
			t.Errorf("%d: after a restart %q", i, got)
		}
		if out := d.Run(t, "inspect", "live").Stdout; !strings.Contains(out, `"deps"`) {
			t.Errorf("%d: inspect does not show it", i)
		}
		d.Refused(t, "SBX-104", "attach-snapshot", "-o", "json", "live", "deps:"+tt.at)
		d.Run(t, "restart", "live")
		if r := d.Try("exec", "live", "--", "test", "-e", tt.at+"/g"); r.Code == 0 {
			t.Errorf("%d: after caisson restart it has it still", i)
		}
		d.Run(t, "rm", "--force", "live")
	}
	d.Run(t, "rm", "--force", "a")
	d.Run(t, "discard", "live")
	d.Run(t, "snapshot", "rm", "deps")
	wantNoDisks(t, d)
}

// TestAttachSnapshotRefused: what is refused leaves the sandbox as it was.
func TestAttachSnapshotRefused(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root")
	d.Run(t, "exec", "a", "--", "sh", "-c", "mkdir -p /opt/deps /opt/full/x /opt/empty /tmp/x && echo one >/opt/deps/f && ln -s /opt/empty /opt/link")
	d.Run(t, "snapshot", "create", "a", "--name", "deps", "--path", "/opt/deps")
	d.Run(t, "snapshot", "create", "a", "--name", "whole")
	d.Run(t, "create", "--name", "bare")
	user := d.User(t, ann)
	for _, tt := range []struct{ code, box, what, words string }{
		{"SBX-104", "a", "deps", "has files of its own in /opt/deps"},
		{"SBX-104", "a", "deps:/opt/full", "has files of its own in /opt/full"},
		{"SBX-104", "a", "deps:/opt/link", "mount on"},
		{"SBX-104", "a", "deps:/tmp/x", "lies in the tmpfs"},
		{"SBX-104", "a", "deps:/workspace", "has a mount on"},
		{"SBX-104", "a", "deps:/usr/bin", "the sandbox's own"},
		{"SBX-104", "bare", "deps:/mnt", "has no disk"},
		{"SBX-246", "a", "whole:/opt/empty", "has the disk of a sandbox"},
		{"SBX-235", "a", "absent:/opt/empty", "no snapshot"},
		{"SBX-107", "absent", "deps:/opt/empty", ""},
	} {
		if f := d.Refused(t, tt.code, "attach-snapshot", "-o", "json", tt.box, tt.what); !strings.Contains(f.Error.Message+f.Error.Cause, tt.words) {
			t.Errorf("%s: %+v", tt.what, f.Error)
		}
	}
	user.Refused(t, "SBX-235", "attach-snapshot", "-o", "json", "a", "deps:/opt/empty")
	user.Run(t, "create", "--name", "hers", "--profile", "dev")
	d.Refused(t, "SBX-805", "attach-snapshot", "-o", "json", "hers", "deps:/opt/empty")
	inspect(t, d, "a")
	d.Run(t, "attach-snapshot", "a", "deps:/opt/empty") // nothing is left of the refused ones
	if got := d.Run(t, "exec", "a", "--", "cat", "/opt/empty/f").Stdout; got != "one\n" {
		t.Errorf("it has %q", got)
	}
	d.Run(t, "snapshot", "create", "a", "--name", "later")
	if r := d.Try("run", "--from", "later", "--", "ls", "/opt/empty"); r.Code != 0 || r.Stdout != "" {
		t.Errorf("a sandbox from a snapshot of it has what was mounted: %+v", r)
	}
	d.Run(t, "stop", "bare")
	d.Refused(t, "SBX-108", "attach-snapshot", "-o", "json", "bare", "deps:/mnt")
	d.Run(t, "rm", "--force", "a", "bare")
	user.Run(t, "rm", "--force", "hers")
	d.Run(t, "snapshot", "rm", "deps", "whole", "later")
	wantNoDisks(t, d)
}

// TestSnapshotOfPathOfAUser: a user other than root keeps, mounts and attaches directories of its own
// sandboxes, and root sees them.
func TestSnapshotOfPathOfAUser(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile+"snapshots: {kept: 1}\n")
	user := d.User(t, ann)
	user.Run(t, "create", "--name", "a", "--disk", "32M")
	user.Run(t, "exec", "a", "--", "sh", "-c", "mkdir deps && echo hers >deps/f")
	name := strings.TrimSpace(user.Run(t, "snapshot", "create", "a", "--path", "/workspace/deps").Stdout)
	user.Run(t, "create", "--name", "b", "--disk", "32M", "--mount", "type=snapshot,src="+name+",dst=/d")
	user.Run(t, "exec", "b", "--", "mkdir", "deps")
	user.Run(t, "attach-snapshot", "b", name)
	if got := user.Run(t, "exec", "b", "--", "sh", "-c", "echo more >>deps/f; cat deps/f /d/f").Stdout; got != "hers\nmore\nhers\n" {
		t.Errorf("in its sandbox: %q", got)
	}
	for range 2 { // the later ones are past the retention, and that which is mounted is not
		user.Run(t, "snapshot", "create", "a", "--path", "/workspace/deps")
	}
	if out := d.Run(t, "snapshot", "ls").Stdout; !strings.Contains(out, name) || strings.Count(out, "/workspace/deps") != 2 {
		t.Errorf("kept: %s", out)
	}
	d.Run(t, "create", "--name", "roots", "--mount", "type=snapshot,src=54321+"+name+",dst=/d")
	d.Run(t, "rm", "--force", "roots")
	user.Run(t, "rm", "--force", "a", "b")
	for line := range strings.Lines(d.Run(t, "snapshot", "ls").Stdout) {
		if f := strings.Fields(line); strings.Contains(line, "/workspace/deps") {
			user.Run(t, "snapshot", "rm", f[0])
		}
	}
	wantNoDisks(t, d)
}
