package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// changeAll writes, replaces, renames and removes in a workspace of writeTree.
const changeAll = "set -e; echo new > new; echo more >> kept; mv dir moved; rm -r gone; rm link; ln -s /etc/passwd link; chmod 700 script; mkdir -p a/b; echo deep > a/b/c"

// writeTree fills dir with files of its owner.
func writeTree(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{"kept": "kept\n", "dir/in": "in\n", "gone/x": "x\n", "script": "#!/bin/sh\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("kept", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
}

// treeText is what dir holds: names, modes, times of change and content.
func treeText(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		text, _ := os.ReadFile(path)
		b.WriteString(path + " " + info.Mode().String() + " " + info.ModTime().String() + " " + string(text) + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCowWorkspace: a sandbox writes as it likes, finds it again after the daemon was killed,
// and the host's directory stays as it is. The same commands in a workspace that is written
// through change it.
//
//caisson:kernel
func TestCowWorkspace(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "pools: [{size: 1}]\n")
	through, dir := workspace(t, 0, 0), workspace(t, 0, 0) // a tmpfs, as /tmp may be, is refused before Linux 6.3
	for _, d := range []string{through, dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeTree(t, through)
	writeTree(t, dir)
	before, control := treeText(t, dir), treeText(t, through)
	if d.Run(t, "run", "--workspace", through, "--", "sh", "-c", changeAll); treeText(t, through) == control {
		t.Fatal("the commands change nothing")
	}
	d.Run(t, "create", "--name", "c", "--workspace", dir+":cow")
	d.Run(t, "exec", "c", "--", "sh", "-c", changeAll)
	const look = "cat new kept moved/in a/b/c; ls; stat -c '%a %u:%g %n' . kept script"
	want := "new\nkept\nmore\nin\ndeep\na\nkept\nlink\nmoved\nnew\nscript\n755 1000:1000 .\n644 1000:1000 kept\n700 1000:1000 script\n"
	for _, when := range []string{"live", "after a restart"} {
		if got := d.Run(t, "exec", "c", "--", "sh", "-c", look).Stdout; got != want {
			t.Errorf("%s: %q", when, got)
		}
		d.Kill(t)
		d.Launch(t)
	}
	if r := d.Try("exec", "c", "--", "sh", "-c", "grep ' /workspace ' /proc/mounts"); !strings.Contains(r.Stdout, "nosuid,nodev") || strings.Contains(r.Stdout, dir) {
		t.Errorf("mounted as %q", r.Stdout)
	}
	d.Refused(t, "SBX-238", "snapshot", "create", "-o", "json", "c")
	d.Refused(t, "SBX-238", "fork", "-o", "json", "c")
	d.Refused(t, "SBX-238", "run", "-o", "json", "--snapshot-on-end", "s", "--workspace", dir+":cow", "--", "true")
	d.Run(t, "rm", "--force", "c")
	if got := treeText(t, dir); got != before {
		t.Errorf("the host has\n%s, not\n%s", got, before)
	}
	wantNoDisks(t, d)
}

// TestDiff: what a sandbox changed is told, to those who may enter it and while it lives.
func TestDiff(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "peers: [{uids: [54321]}]\n")
	dir := t.TempDir()
	writeTree(t, dir)
	d.Run(t, "create", "--name", "c", "--workspace", dir+":cow")
	if got := d.Run(t, "diff", "c").Stdout; got != "" {
		t.Errorf("nothing was done: %q", got)
	}
	d.Run(t, "exec", "c", "--", "sh", "-c", changeAll+"; touch 'odd\tname'; d=x; for i in $(seq 300); do mkdir $d; cd $d; done")
	want := "A a/\nA a/b/\nA a/b/c\nD gone/\nM kept\nR dir to moved/\nA new\nA odd\\tname\nM script (mode 644 to 700)\n"
	for _, when := range []string{"live", "after a restart"} {
		r := d.Run(t, "diff", "c")
		got, rest, _ := strings.Cut(r.Stdout, "A x/\n")
		if !strings.HasSuffix(rest, "\nM link -> /etc/passwd (control file)\n") {
			t.Errorf("%s: control files are not last", when)
		}
		if got != want || !strings.Contains(r.Stderr, "more changes") {
			t.Errorf("%s: %s%s", when, r.Stdout, r.Stderr)
		}
		d.Kill(t)
		d.Launch(t)
	}
	d.Run(t, "pause", "c")
	if got := d.Run(t, "diff", "--stat", "c").Stdout; !strings.Contains(got, "M kept | 5 to 10 bytes\n") || !strings.Contains(got, "3 modified, 1 deleted, 1 renamed\n") {
		t.Errorf("--stat: %s", got)
	}
	d.Run(t, "resume", "c")
	if got := d.Run(t, "diff", "--name-only", "c").Stdout; !strings.HasPrefix(got, "a\na/b\na/b/c\ngone\nkept\n") {
		t.Errorf("--name-only: %s", got)
	}
	if got := d.Run(t, "diff", "--json", "c").Stdout; !strings.Contains(got, `"truncated": true`) || !strings.Contains(got, `"old_path": "dir"`) {
		t.Errorf("--json: %s", got)
	}
	d.User(t, ann).Refused(t, "SBX-107", "diff", "-o", "json", "c")
	d.Refused(t, "SBX-107", "diff", "-o", "json", "absent")
	d.Run(t, "create", "--name", "through", "--workspace", dir)
	d.Refused(t, "SBX-104", "diff", "-o", "json", "through")
	if r := d.Run(t, "stop", "c"); !strings.Contains(r.Stderr, "caisson: its changes are kept: caisson changes show ") {
		t.Errorf("stop says %q", r.Stderr)
	}
	if r := d.Run(t, "rm", "--force", "through"); r.Stderr != "" {
		t.Errorf("one without changes: %q", r.Stderr)
	}
	if got := d.Run(t, "diff", "--name-only", "c").Stdout; !strings.HasPrefix(got, "a\na/b\na/b/c\ngone\nkept\n") {
		t.Errorf("an ended one: %s", got)
	}
}

// TestCowOfOthers: a user who may only read a directory gets it copy-on-write, as a workspace
// at another path too, and writes nothing to the host. What its owner keeps to itself it does
// not get.
func TestCowOfOthers(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "peers: [{uids: [54321]}]\n")
	dir := t.TempDir()
	writeTree(t, dir)
	for parent := dir; parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := treeText(t, dir)
	user := d.User(t, ann)
	user.Refused(t, "SBX-805", "run", "-o", "json", "--workspace", dir, "--", "true")
	r := user.Run(t, "run", "--disk", "32M", "--workspace", dir+":/srv/w:cow", "--", "sh", "-c", "cd /srv/w; cat kept; cat secret 2>&1; echo x > kept 2>/dev/null || echo refused; df -k . | awk 'NR > 1 {print ($2 < 40000)}'; touch /workspace/own")
	if !strings.HasPrefix(r.Stdout, "kept\n") || !strings.Contains(r.Stdout, "'secret': Permission denied") || !strings.HasSuffix(r.Stdout, "refused\n1\n") {
		t.Errorf("%q", r.Stdout)
	}
	if got := treeText(t, dir); got != before {
		t.Errorf("the host has\n%s", got)
	}
}

// TestCowOfWhatCannotMapIDs: what cannot be a lower layer is refused with what to do instead.
func TestCowOfWhatCannotMapIDs(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "")
	dir := t.TempDir()
	if err := unix.Mount("overlay", dir, "overlay", 0, "lowerdir="+t.TempDir()+":"+t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if f := d.Refused(t, "SBX-207", "run", "-o", "json", "--workspace", dir+":cow", "--", "true"); !strings.Contains(f.Error.Remedy, "caisson cp "+dir) {
		t.Errorf("no alternative: %+v", f)
	}
	if r := d.Run(t, "ls", "-q"); r.Stdout != "" {
		t.Errorf("left: %s", r.Stdout)
	}
	wantNoDisks(t, d)
}

// TestCowNested: children get nothing of a copy-on-write workspace, since they would write to
// the host, and a copy-on-write directory of another one.
func TestCowNested(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	const owner = 4321
	d := harness.StartWith(t, "")
	dir := shared(t, owner)
	cow := sharing(t, d, "cow", dir+":cow")
	if f := cow.refused(t, "SBX-805", smallRun("/workspace/sub:ro", "ls")...); !strings.Contains(f.Error.Message, "copy-on-write") {
		t.Errorf("%+v", f)
	}
	plain := sharing(t, d, "plain", dir, "--disk", "64M") // a child's disk is at most as large
	before := treeText(t, dir)
	ask := smallRun("/workspace/sub:cow", "sh", "-c", "test -e file && echo made > made && cat made")
	plain.refused(t, "SBX-805", ask...)
	plain.run(t, append([]string{ask[0], "--disk", "32M"}, ask[1:]...)...)
	if got := treeText(t, dir); got != before {
		t.Errorf("the host has\n%s", got)
	}
	plain.run(t, smallRun("/workspace/sub", "touch", "made")...)
	if got := treeText(t, dir); got == before {
		t.Error("a child writes to no workspace at all")
	}
}
