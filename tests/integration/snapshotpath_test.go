package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// lookAtTree prints what a directory has of all kinds: content, owners, modes, links and times.
const lookAtTree = "cd $1 && find . | sort; cat sub/f l; stat -c '%n %u:%g %a' .; stat -c '%n %u:%g %a %h %Y' sub sub/f g"

const growTree = "mkdir -p $1/sub && cd $1 && echo one >sub/f && ln sub/f g && ln -s sub/f l && chown 7:8 sub/f && chmod 640 sub/f && chmod 1711 sub" +
	" && mkfifo pipe && rm pipe && mkdir -p \"odd name\" && : >\"odd name/$(printf 'b\\377d')\" && touch -d @1000000000 sub/f sub ."

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
		if got := d.Run(t, "exec", "b", "--", "sh", "-c", "cd /srv/deps; ls; cat moved/f; find . >/dev/null && echo all").Stdout; got != "l\nmoved\nnew\nodd name\none\ntwo\nall\n" {
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
	d.Refused(t, "SBX-238", "rewind", "-o", "json", "b", "whole")
	d.Run(t, "rm", "--force", "a", "b")
	d.Run(t, "snapshot", "rm", "deps", "whole")
	wantNoDisks(t, d)
}
