package integration

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// changesetsOf are the changesets that a client lists, by the names of their sandboxes.
func changesetsOf(t *testing.T, list func(args ...string) harness.Result) (names []string) {
	t.Helper()
	var all []struct{ Name string }
	list("changes", "ls", "--json").JSON(t, &all)
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names
}

// TestChangesets: what a sandbox changed stays when it ends, whatever ends it, and can be shown,
// applied and discarded. Renamed directories are applied too.
//
//caisson:kernel
func TestChangesets(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "")
	dir := workspace(t, 0, 0)
	writeTree(t, dir)
	time.Sleep(20 * time.Millisecond) // a tick of the clock of files
	before := treeText(t, dir)
	d.Run(t, "run", "--workspace", dir+":cow", "--", "cat", "kept")
	if got := changesetsOf(t, d.Try); len(got) > 0 {
		t.Errorf("nothing was changed: %q", got)
	}
	d.Run(t, "create", "--name", "c", "--workspace", dir+":cow")
	d.Run(t, "exec", "c", "--", "sh", "-c", changeAll)
	want := d.Run(t, "diff", "c").Stdout
	d.Run(t, "stop", "c")
	if got := d.Run(t, "diff", "c").Stdout; got != want {
		t.Errorf("diff of one that was stopped: %s", got)
	}
	d.Run(t, "rm", "c")
	d.Kill(t)
	d.Launch(t)
	if got := changesetsOf(t, d.Try); len(got) != 1 || got[0] != "c" {
		t.Fatalf("kept: %q", got)
	}
	if got := d.Run(t, "diff", "c").Stdout; got != want || treeText(t, dir) != before {
		t.Errorf("diff of a changeset: %s", got)
	}
	d.Run(t, "apply", "c", "new")
	if got := d.Run(t, "diff", "c").Stdout; strings.Contains(got, "new") {
		t.Errorf("diff of the rest: %s", got)
	}
	r := d.Run(t, "apply", "--include-control", "c")
	if !strings.Contains(r.Stdout, "R dir to moved/\n") {
		t.Errorf("%+v", r)
	}
	hostHas(t, dir, map[string]string{"new": "new\n", "kept": "kept\nmore\n", "moved/in": "in\n", "a/b/c": "deep\n", "gone/x": "", "dir/in": ""})
	if got := changesetsOf(t, d.Try); len(got) > 0 {
		t.Errorf("after all was applied: %q", got)
	}
	d.Refused(t, "SBX-107", "apply", "-o", "json", "c")

	for name, end := range map[string]func(){
		"ended":   func() { d.Run(t, "rm", "--force", "ended") },
		"expired": func() {},
	} {
		d.Run(t, "create", "--name", name, "--ttl", "2s", "--workspace", dir+":cow")
		d.Run(t, "exec", name, "--", "sh", "-c", "echo x > "+name)
		end()
		await(t, "a changeset of "+name, func() bool { got := changesetsOf(t, d.Try); return len(got) == 1 && got[0] == name })
		d.Run(t, "changes", "show", name)
		d.Run(t, "discard", name)
		d.Refused(t, "SBX-242", "changes", "discard", "-o", "json", name)
	}
	d.Try("run", "--workspace", dir+":cow", "--", "sh", "-c", "echo x > ran; exit 3")
	await(t, "a changeset of run", func() bool { return len(changesetsOf(t, d.Try)) == 1 })
	wantNoDisks(t, d)
}

// TestChangesetsOfUsers: each user sees and discards its own, within the bounds of the
// configuration; the oldest go first.
func TestChangesetsOfUsers(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "peers: [{uids: [54321]}]\nworkspaces: {kept: 2}\n")
	dir := workspace(t, ann, ann)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	user := d.User(t, ann)
	for _, name := range []string{"one", "two", "three"} {
		user.Run(t, "create", "--name", name, "--workspace", dir+":cow")
		user.Run(t, "exec", name, "--", "sh", "-c", "echo x > "+name)
		user.Run(t, "rm", "--force", name)
	}
	d.Run(t, "create", "--name", "roots", "--workspace", dir+":cow")
	d.Run(t, "exec", "roots", "--", "touch", "roots")
	d.Run(t, "rm", "--force", "roots")
	if got := strings.Join(changesetsOf(t, user.Try), " "); got != "three two" {
		t.Errorf("the user's: %s", got)
	}
	if got := strings.Join(changesetsOf(t, d.Try), " "); got != "roots three two" {
		t.Errorf("all: %s", got)
	}
	user.Refused(t, "SBX-242", "changes", "discard", "-o", "json", "roots")
	user.Refused(t, "SBX-107", "apply", "-o", "json", "roots")
	user.Run(t, "apply", "three")
	hostHas(t, dir, map[string]string{"three": "x\n"})
	if st, err := os.Lstat(filepath.Join(dir, "three")); err != nil || ownerOf(st) != ann {
		t.Errorf("%v, %v", st, err)
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, ann, ann); err != nil {
		t.Fatal(err)
	}
	if f := user.Refused(t, "SBX-104", "apply", "-o", "json", "two"); !strings.Contains(f.Error.Message, "moved or replaced") {
		t.Errorf("%+v", f)
	}
	if err := os.RemoveAll(dir + "-away"); err != nil {
		t.Fatal(err)
	}
}

// TestChangesetFailed: where there is no room a sandbox is not removed, and an event says so. It is
// once there is room, with its changeset.
func TestChangesetFailed(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "")
	dir := workspace(t, 0, 0)
	events := func(of string) int {
		return strings.Count(d.Run(t, "events", "--json", "--filter", "type=changeset."+of).Stdout, "changeset."+of)
	}
	d.Run(t, "run", "--workspace", dir+":cow", "--", "touch", "new")
	await(t, "a changeset", func() bool { return events("kept") == 1 })
	if n := events("failed"); n != 0 {
		t.Fatalf("%d failed", n)
	}
	full := filepath.Join(d.Root, "changesets")
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "nr_inodes=1"); err != nil {
		t.Fatal(err)
	}
	free := sync.OnceFunc(func() {
		if err := unix.Unmount(full, 0); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(free)
	d.Run(t, "create", "--name", "c", "--workspace", dir+":cow")
	d.Run(t, "exec", "c", "--", "touch", "new")
	d.Refused(t, "SBX-609", "rm", "--json", "--force", "c")
	await(t, "the event", func() bool { return events("failed") > 0 })
	if r := d.Run(t, "events", "--json", "--filter", "type=changeset.failed"); !strings.Contains(r.Stdout, `"name":"c"`) || !strings.Contains(r.Stdout, "no space left") {
		t.Errorf("%s", r.Stdout)
	}
	free()
	d.Run(t, "cleanup")
	await(t, "the changeset", func() bool { return events("kept") == 2 })
	wantNoDisks(t, d)
}
