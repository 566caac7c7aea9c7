package apply

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/changes"
)

func put(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(filepath.Base(dir)+" "+name), 0o644))
	}
}

func has(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s: %q, %v; want %q", path, got, err, want)
	}
}

func absentAt(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is there", path)
		}
	}
}

func paths(notes []Note) (all []string) {
	for _, n := range notes {
		all = append(all, n.Path)
	}
	return all
}

func changed(list []changes.Change) (all []string) {
	for _, c := range list {
		all = append(all, c.Path)
	}
	return all
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// conflicting is a workspace in which the host and the sandbox changed the same.
func conflicting(t *testing.T) *overlay {
	o := mountOverlay(t, func(host string) {
		put(t, host, "both", "removed", "edited", "mine", "dir/in", "gone/in", "quiet/in", "old/in", "theirs")
	})
	put(t, o.merged, "both", "removed", "mine", "new", "sub/new", "dir/kept")
	must(t, os.Remove(o.merged+"/edited"), os.RemoveAll(o.merged+"/dir"), os.RemoveAll(o.merged+"/quiet"), os.RemoveAll(o.merged+"/gone"))
	put(t, o.host, "both", "edited", "dir/in", "new", "sub/new", "theirs", "gone/new")
	must(t, os.Remove(o.host+"/removed"), os.Chown(o.host+"/sub", owner, owner), os.Chown(o.host+"/dir", owner, owner))
	return o
}

// What both changed is refused, or goes the way that was asked for. What only one changed is as
// that one has it.
func TestConflicts(t *testing.T) {
	want := []string{"both", "dir", "edited", "gone", "new", "removed", "sub/new"}
	o := conflicting(t)
	before := treeText(t, o.host)
	p, _, err := o.look(t, Request{})
	must(t, err)
	equal(t, "conflicts", paths(p.Conflicts), want)
	if err := p.Refusal(); !errors.Is(err, sbxerr.ApplyConflict) || !strings.Contains(err.Error(), `7 changes`) || !strings.Contains(err.Error(), `"both": the host changed it`) {
		t.Errorf("%v", err)
	}
	if treeText(t, o.host) != before {
		t.Error("a look changed the host")
	}
	p, result := o.apply(t, Request{Side: Ours})
	equal(t, "conflicts", paths(p.Conflicts), want)
	equal(t, "applied", changed(result.Changes), []string{"mine", "quiet"})
	has(t, o.host+"/both", "host both")
	has(t, o.host+"/mine", "merged mine")
	has(t, o.host+"/sub/new", "host sub/new")
	absentAt(t, o.host+"/quiet", o.host+"/removed")

	o = conflicting(t)
	_, result = o.apply(t, Request{Side: Theirs})
	equal(t, "failed", paths(result.Failed), nil)
	for _, name := range []string{"both", "removed", "mine", "new", "sub/new"} {
		has(t, o.host+"/"+name, "merged "+name)
	}
	has(t, o.host+"/theirs", "host theirs")
	absentAt(t, o.host+"/edited", o.host+"/gone", o.host+"/dir")

	o = conflicting(t)
	_, result = o.apply(t, Request{Paths: []string{"mine", "quiet/in"}})
	equal(t, "named", changed(result.Changes), []string{"mine"})
	if _, _, err := o.look(t, Request{Paths: []string{"theirs"}}); !errors.Is(err, sbxerr.Config) {
		t.Errorf("nothing changed there: %v", err)
	}
}

// A directory that the host removed, and a renamed one of which it moved the old name, are
// conflicts: the upper layer has a part of them only.
func TestLostDirectories(t *testing.T) {
	o := mountOverlay(t, func(host string) { put(t, host, "dir/in", "dir/other", "old/in", "kept") })
	put(t, o.merged, "dir/in")
	must(t, os.Rename(o.merged+"/old", o.merged+"/new"), os.Rename(o.merged+"/kept", o.merged+"/moved"))
	o.unmount(t)
	must(t, os.RemoveAll(o.host+"/dir"), os.Rename(o.host+"/old", o.host+"/elsewhere"))
	p, _, err := o.look(t, Request{})
	must(t, err)
	equal(t, "conflicts", paths(p.Conflicts), []string{"dir", "new"})
	_, result := o.apply(t, Request{Side: Ours})
	equal(t, "applied", changed(result.Changes), []string{"kept", "moved"})
	has(t, o.host+"/elsewhere/in", "host old/in")
}

// A live sandbox reads a renamed directory under its old name.
func TestRenamedWhileLive(t *testing.T) {
	o := mountOverlay(t, func(host string) { put(t, host, "old/in", "top/sub/in", "other") })
	must(t, os.Rename(o.merged+"/old", o.merged+"/new"), os.Rename(o.merged+"/top/sub", o.merged+"/sub"), os.RemoveAll(o.merged+"/top"))
	put(t, o.merged, "other", "old/fresh")
	for _, named := range [][]string{nil, {"new"}, {"top"}, {"old"}} {
		if _, _, err := o.look(t, Request{Paths: named}); !errors.Is(err, sbxerr.ApplyRenamed) {
			t.Errorf("%q: %v", named, err)
		}
	}
	_, result := o.apply(t, Request{Paths: []string{"other"}})
	equal(t, "applied", changed(result.Changes), []string{"other"})
	has(t, o.merged+"/new/in", "host old/in")
	o.unmount(t)
	if _, _, err := o.look(t, Request{Paths: []string{"top"}}); !errors.Is(err, sbxerr.Config) {
		t.Errorf("a part of a rename: %v", err)
	}
	o.apply(t, Request{})
	has(t, o.host+"/new/in", "host old/in")
	has(t, o.host+"/sub/in", "host top/sub/in")
	has(t, o.host+"/old/fresh", "merged old/fresh")
	absentAt(t, o.host+"/top", o.host+"/old/in")
}

// Files that control programs of the host, and links out of the tree, are applied on demand.
func TestControlFiles(t *testing.T) {
	patterns := Control{".git/hooks/**", ".git/config", ".vscode/**", ".github/workflows/**"}
	o := mountOverlay(t, func(host string) { put(t, host, ".git/config", ".git/HEAD", "src/.vscode/x", "plain/in") })
	put(t, o.merged, ".git/config", ".git/HEAD", ".git/hooks/pre-commit", "src/.VSCode/tasks.json", "main.go", "sub/.github/workflows/ci.yml", "sub/ok")
	must(t, os.Symlink("/etc/passwd", o.merged+"/out"), os.Symlink("sub/../../x", o.merged+"/up"), os.Symlink("../main.go", o.merged+"/sub/in"),
		os.RemoveAll(o.merged+"/src"), os.Rename(o.merged+"/plain", o.merged+"/.github"))
	o.unmount(t)
	p, result := o.apply(t, Request{Patterns: patterns})
	equal(t, "control", changed(p.Control), []string{".git/config", ".git/hooks", ".git/hooks/pre-commit", ".github", "out", "sub/.github/workflows", "sub/.github/workflows/ci.yml", "up"})
	equal(t, "applied", changed(result.Changes), []string{".git/HEAD", "main.go", "src", "sub", "sub/.github", "sub/in", "sub/ok"})
	has(t, o.host+"/.git/config", "host .git/config")
	has(t, o.host+"/sub/in", "merged main.go")
	p, result = o.apply(t, Request{Patterns: patterns, IncludeControl: true})
	if len(p.Control)+len(result.Failed) > 0 || len(result.Changes) != 8 {
		t.Errorf("%+v %+v", p.Control, result)
	}
	has(t, o.host+"/.git/hooks/pre-commit", "merged .git/hooks/pre-commit")
	has(t, o.host+"/.github/in", "host plain/in")
}

// What no directory of a user should get from a sandbox is left out, and told.
func TestLeft(t *testing.T) {
	o := mountOverlay(t, func(host string) { put(t, host, "was") })
	m := o.merged + "/"
	put(t, m, "set", "one")
	must(t, unix.Mkfifo(m+"fifo", 0o644), unix.Mknod(m+"socket", unix.S_IFSOCK|0o644, 0), os.Remove(m+"was"), unix.Mkfifo(m+"was", 0o644),
		unix.Chmod(m+"set", 0o6755), os.Link(m+"one", m+"two"), os.Chown(m+"one", 777, 777))
	p, _ := o.apply(t, Request{})
	equal(t, "left", paths(p.Left), []string{"fifo", "socket", "was"})
	equal(t, "told", paths(p.Told), []string{"set"})
	var set, one, two unix.Stat_t
	must(t, unix.Lstat(o.host+"/set", &set), unix.Lstat(o.host+"/one", &one), unix.Lstat(o.host+"/two", &two))
	if set.Mode&0o7777 != 0o755 || one.Uid != owner || one.Ino == two.Ino {
		t.Errorf("set %o, owner %d, inodes %d and %d", set.Mode, one.Uid, one.Ino, two.Ino)
	}
	has(t, o.host+"/was", "host was")
}

// An apply that is killed at any step is undone or finished, also if the next daemon is killed
// at the same step.
func TestKilledAtEveryStep(t *testing.T) {
	for after := 0; ; after++ {
		o := mountOverlay(t, func(host string) {
			put(t, host, "edit", "gone/in", "old/in", "closed/in", "tofile/in", "todir")
			must(t, os.Chmod(host+"/closed", 0o500))
		})
		m := o.merged + "/"
		put(t, m, "edit", "new/a/b", "old/new", "closed/in")
		must(t, os.RemoveAll(m+"gone"), os.Rename(m+"old", m+"new/moved"), os.RemoveAll(m+"tofile"), os.Remove(m+"todir"), os.Chmod(m+"new/a", 0o500))
		put(t, m, "tofile", "todir/in")
		want := treeText(t, o.merged)
		before := treeText(t, o.host)
		o.unmount(t)
		at := o.applyKilled(t, after)
		if at == "" {
			if after < 15 {
				t.Errorf("only %d steps", after)
			}
			break
		}
		if _, failed, err := Finish(o.files); err != nil || len(failed) > 0 {
			t.Errorf("%s: %v %v", at, failed, err)
		}
		o.clean(t)
		got := treeText(t, o.host)
		if got != want && (got != before || !slices.Contains([]string{"apply/begun", "apply/made", "apply/staged"}, at)) {
			t.Errorf("%s: %s", at, differences(got, want))
		}
	}
}

// A directory that a user swaps for a link while it is written to leads nowhere. The control
// is a write by name, which follows the link.
func TestRacingLinks(t *testing.T) {
	const rounds = 60
	outside := 0
	for range rounds {
		o := mountOverlay(t, func(host string) {
			for i := range 20 {
				put(t, host, fmt.Sprintf("d/f%d", i))
			}
		})
		victim := filepath.Dir(o.host) + "/victim"
		must(t, os.Mkdir(victim, 0o777), os.Chmod(victim, 0o777))
		for i := range 20 {
			put(t, victim, fmt.Sprintf("f%d", i), fmt.Sprintf("n%d", i))
			put(t, o.merged, fmt.Sprintf("d/f%d", i), fmt.Sprintf("d/n%d", i))
		}
		must(t, os.Chown(victim, owner, owner))
		before := treeText(t, victim)
		_, staged := o.stage(t, Request{})
		stop := swapForLink(o.host+"/d", victim)
		_, err := staged.Commit()
		for range 100 {
			if f, err := os.OpenFile(o.host+"/d/probe", os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				_ = f.Close()
			}
		}
		stop()
		must(t, err)
		if os.Remove(victim+"/probe") == nil {
			outside++
		}
		if after := treeText(t, victim); after != before {
			t.Fatalf("written outside: %s", differences(after, before))
		}
	}
	if outside == 0 {
		t.Error("no write by name was led astray: the race is none")
	}
}

// swapForLink has path be a link to another directory, and a directory, in turns.
func swapForLink(path, to string) (stop func()) {
	_ = os.Symlink(to, path+"-link")
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, path+"-link", unix.RENAME_EXCHANGE)
			}
		}
	})
	return func() { close(done); all.Wait() }
}

// What the host changes between the plan and its doing stays as the host has it.
func TestChangedMeanwhile(t *testing.T) {
	o := mountOverlay(t, func(host string) { put(t, host, "edit", "gone", "replaced", "fine", "deep/gone") })
	put(t, o.merged, "edit", "new", "replaced", "fine", "sub/in")
	must(t, os.Remove(o.merged+"/gone"), os.RemoveAll(o.merged+"/deep"))
	_, staged := o.stage(t, Request{})
	put(t, o.host, "new", "sub/other")
	must(t, os.WriteFile(o.host+"/edit", []byte("longer than it was"), 0o644), os.WriteFile(o.host+"/gone", []byte("longer than it was"), 0o644),
		os.Remove(o.host+"/replaced"), os.WriteFile(o.host+"/replaced", []byte("other"), 0o644))
	result, err := staged.Commit()
	must(t, err)
	o.clean(t)
	equal(t, "failed", paths(result.Failed), []string{"edit", "gone", "new", "replaced", "sub"})
	equal(t, "applied", changed(result.Changes), []string{"deep", "fine"})
	has(t, o.host+"/edit", "longer than it was")
	has(t, o.host+"/gone", "longer than it was")
	has(t, o.host+"/new", "host new")
	has(t, o.host+"/replaced", "other")
	has(t, o.host+"/sub/other", "host sub/other")
}

// The owner's rights are all that an apply has.
func TestOwnersRights(t *testing.T) {
	o := mountOverlay(t, func(host string) { put(t, host, "roots/in", "own/in") })
	must(t, os.Chown(o.host+"/roots", 0, 0), os.Chown(o.host+"/roots/in", 0, 0))
	o.since = time.Now().UnixNano()
	put(t, o.merged, "roots/in", "roots/new", "own/in")
	must(t, os.Chmod(o.merged+"/roots", 0o777))
	_, result := o.apply(t, Request{})
	equal(t, "applied", changed(result.Changes), []string{"own/in"})
	has(t, o.host+"/roots/in", "host roots/in")
	absentAt(t, o.host+"/roots/new")
}

// Names that are longer than a path can be, and the room of the host, end an apply before
// anything is written.
func TestRefusedBefore(t *testing.T) {
	o := mountOverlay(t, func(string) {})
	must(t, unix.Mount("", filepath.Dir(o.host), "", unix.MS_REMOUNT, "size=4m"))
	must(t, os.WriteFile(o.merged+"/big", make([]byte, 3<<20), 0o644))
	p, layers, err := o.look(t, Request{})
	must(t, err)
	if _, err := p.Stage(t.Context(), layers.Upper, o.hostDir(t), o.files); !errors.Is(err, sbxerr.ApplyFailed) || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("%v", err)
	}
	o.clean(t)
	must(t, os.Remove(o.merged+"/big"))
	dir := o.merged
	for range 30 {
		dir += "/" + strings.Repeat("d", 100)
		must(t, os.Mkdir(dir, 0o755))
	}
	fd, err := unix.Open(dir, unix.O_PATH, 0)
	must(t, err)
	for range 20 {
		must(t, unix.Mkdirat(fd, strings.Repeat("d", 100), 0o755))
		next, err := unix.Openat(fd, strings.Repeat("d", 100), unix.O_PATH, 0)
		must(t, err, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
	if _, _, err := o.look(t, Request{}); !errors.Is(err, sbxerr.FileTooBig) {
		t.Errorf("%v", err)
	}
}
