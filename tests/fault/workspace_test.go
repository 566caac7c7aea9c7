package fault

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// A workspace that was moved or deleted while no daemon ran is still mounted in its
// sandbox, which lives on.
func TestWorkspaceGoneWhileAway(t *testing.T) {
	d := harness.StartWith(t, "")
	for name, change := range map[string]func(dir string) error{
		"unchanged": func(string) error { return nil },
		"moved":     func(dir string) error { return os.Rename(dir, dir+"-moved") },
		"replaced":  func(dir string) error { return replace(dir) },
		"deleted":   os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ws")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			d.Run(t, "create", "--name", name, "--workspace", dir)
			pid := initOf(t, d, name)
			d.Kill(t)
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			d.Launch(t)
			if now := initOf(t, d, name); now != pid {
				t.Errorf("PID 1 is %d, was %d", now, pid)
			}
			if r := d.Run(t, "exec", name, "--", "sh", "-c", "cd /workspace && echo on"); r.Stdout != "on\n" {
				t.Errorf("%+v", r)
			}
			d.Run(t, "rm", "--force", name)
			checkSound(t, d)
		})
	}
}

// TestKilledWithCow: a daemon that dies while it makes a copy-on-write workspace, or while one
// is written to, leaves the directory of the host as it is. What was written is there as long as
// the sandbox.
func TestKilledWithCow(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("kept\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"disk", "mounts", "container"} {
		b.createKilled(t, step, "--workspace", dir+":cow")
		b.Run(t, "exec", "made", "--", "sh", "-c", "cd /workspace; echo more >>kept; rm -f made; touch made")
		b.Kill(t)
		b.Launch(t, b.flags...)
		if out := b.Run(t, "exec", "made", "--", "sh", "-c", "cat kept; ls; echo on >>kept").Stdout; out != "kept\nmore\nkept\nmade\n" {
			t.Errorf("%s: %q", step, out)
		}
		b.empty(t)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(text) != "kept\n" {
		t.Errorf("the host has %q, %v", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the host has %v, %v", entries, err)
	}
}

// TestBrokenAttach: a daemon that dies, or fails, while a live sandbox gets a workspace leaves it
// with the old one or the new one, and as declared. The repeated call gives it the new one.
func TestBrokenAttach(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	for _, tt := range []struct {
		mode  string
		flags []string
	}{{"", []string{"--nested", "--cpus", "2"}}, {":cow", []string{"--disk", "64M"}}} {
		for _, step := range need.Turn(t, []string{"snapshot/frozen", "attach/host", "attach/inside", "attach/spec", "snapshot/saved"}) {
			for _, how := range []string{"kill", "error"} {
				t.Run(step+tt.mode+" "+how, func(t *testing.T) {
					dir := t.TempDir()
					if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o644); err != nil {
						t.Fatal(err)
					}
					b.Run(t, append([]string{"create", "--name", "box"}, tt.flags...)...)
					b.arm(t, step+"="+how)
					attach := begin(t, b.Daemon, "attach-workspace", "--json", "box", dir+tt.mode)
					if how == "kill" {
						b.died(t, step)
					}
					if r := attach.end(t); r.Code != 0 {
						checkTyped(t, r)
					} else if how == "error" {
						t.Error("the call did not fail")
					}
					b.disarm(t)
					b.Run(t, "inspect", "box")
					attached := b.Try("exec", "box", "--", "test", "-e", "/workspace/kept").Code == 0
					if want := step == "snapshot/saved"; attached != want {
						t.Errorf("it has the workspace: %v", attached)
					}
					if r := b.Try("attach-workspace", "--json", "box", dir+tt.mode); (r.Code == 0) == attached {
						t.Errorf("repeated: %+v", r)
					}
					b.Run(t, "inspect", "box")
					b.Run(t, "exec", "box", "--", "sh", "-c", "cd /workspace && cat kept")
					if r := b.Try("exec", "box", "--", "touch", "/workspace/new"); tt.mode == ":cow" && r.Code != 0 {
						t.Errorf("it writes nothing: %+v", r)
					}
					b.empty(t)
					if tt.mode == ":cow" {
						b.Run(t, "discard", "box")
					}
				})
			}
		}
	}
}

// TestBrokenAttachSnapshot: a daemon that dies, or fails, while a live sandbox gets a snapshot leaves it
// with the snapshot or without, and as declared. The repeated call gives it.
func TestBrokenAttachSnapshot(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	b.Run(t, "create", "--name", "first", "--disk", "64M")
	b.Run(t, "exec", "first", "--", "sh", "-c", "mkdir deps && touch deps/kept")
	b.Run(t, "snapshot", "create", "first", "--path", "/workspace/deps", "--name", "deps")
	b.Run(t, "rm", "--force", "first")
	for _, step := range []string{"disk", "mounts", "container"} {
		b.createKilled(t, step, "--mount", "type=snapshot,src=deps,dst=/d")
		b.Run(t, "exec", "made", "--", "sh", "-c", "rm /d/kept && touch /d/new")
		b.Run(t, "rm", "--force", "made")
	}
	for _, step := range need.Turn(t, []string{"snapshot/frozen", "attach/host", "attach/inside", "attach/spec", "snapshot/saved"}) {
		for _, how := range []string{"kill", "error"} {
			t.Run(step+" "+how, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "own"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Mkdir(filepath.Join(dir, "deps"), 0o755); err != nil {
					t.Fatal(err)
				}
				b.Run(t, "create", "--name", "box", "--disk", "64M", "--nested", "--cpus", "2", "--workspace", dir)
				b.arm(t, step+"="+how)
				attach := begin(t, b.Daemon, "attach-snapshot", "--json", "box", "deps")
				if how == "kill" {
					b.died(t, step)
				}
				if r := attach.end(t); r.Code != 0 {
					checkTyped(t, r)
				} else if how == "error" {
					t.Error("the call did not fail")
				}
				b.disarm(t)
				b.Run(t, "inspect", "box")
				attached := b.Try("exec", "box", "--", "test", "-e", "/workspace/deps/kept").Code == 0
				if want := step == "snapshot/saved"; attached != want {
					t.Errorf("it has the snapshot: %v", attached)
				}
				if r := b.Try("attach-snapshot", "--json", "box", "deps"); (r.Code == 0) == attached {
					t.Errorf("repeated: %+v", r)
				}
				b.Run(t, "inspect", "box")
				b.Run(t, "exec", "box", "--", "sh", "-c", "cat own deps/kept && touch deps/new && rm deps/kept")
				b.Run(t, "rm", "--force", "box")
			})
		}
	}
	b.Run(t, "snapshot", "rm", "deps")
	b.empty(t)
}

// TestKilledApply: a daemon that dies at any step of an apply, of which the next one finishes it
// or undoes it. The sandbox goes on, also one that stood still for it.
func TestKilledApply(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	steps := []string{"snapshot/frozen", "apply/begun", "apply/made", "snapshot/saved", "apply/staged", "apply/journal", "apply/op-0", "apply/op-1", "apply/op-2", "apply/done", "apply/cleared"}
	for _, step := range need.Turn(t, steps) {
		dir := filepath.Join(t.TempDir(), "ws")
		if err := os.MkdirAll(filepath.Join(dir, "gone"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("kept\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // a tick of the clock of files
		b.Run(t, "create", "--name", "box", "--workspace", dir+":cow")
		b.Run(t, "exec", "box", "--", "sh", "-c", "echo more >>kept; rmdir gone; mkdir new; echo new >new/in")
		b.arm(t, step+"=kill")
		apply := begin(t, b.Daemon, "apply", "box")
		b.died(t, step)
		apply.end(t)
		left := b.Run(t, "diff", "box").Stdout
		if finished := slices.Index(steps, step) >= slices.Index(steps, "apply/journal"); finished != (left == "") {
			t.Errorf("%s: left %q", step, left)
		}
		b.Run(t, "apply", "box")
		b.Run(t, "exec", "box", "--", "sh", "-c", "echo on >>kept")
		b.Run(t, "apply", "box")
		if text, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(text) != "kept\nmore\non\n" {
			t.Errorf("%s: the host has %q, %v", step, text, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("%s: the host has %v, %v", step, entries, err)
		}
		b.empty(t)
	}
}

// TestKilledChangeset: a daemon that dies while a sandbox ends loses nothing of what that changed,
// and one that dies while it applies the changeset has that finished, renamed directories too.
func TestKilledChangeset(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	for _, step := range need.Turn(t, []string{"changeset/made", "changeset/moved", "apply/journal", "apply/op-0", "apply/op-1", "apply/op-2"}) {
		dir := filepath.Join(t.TempDir(), "ws")
		if err := os.MkdirAll(filepath.Join(dir, "old/in"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.Run(t, "create", "--name", "box", "--workspace", dir+":cow")
		b.Run(t, "exec", "box", "--", "sh", "-c", "mv old moved; echo new >moved/new")
		call := []string{"rm", "--force", "box"}
		if !strings.HasPrefix(step, "changeset/") {
			b.Run(t, call...)
			call = []string{"apply", "box"}
		}
		b.arm(t, step+"=kill")
		killed := begin(t, b.Daemon, call...)
		b.died(t, step)
		killed.end(t)
		b.Run(t, "apply", "box")
		if text, err := os.ReadFile(filepath.Join(dir, "moved/new")); err != nil || string(text) != "new\n" {
			t.Errorf("%s: the host has %q, %v", step, text, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%s: the host has %v, %v", step, entries, err)
		}
		if r := b.Run(t, "changes", "ls", "--json"); strings.TrimSpace(r.Stdout) != "[]" {
			t.Errorf("%s: left %s", step, r.Stdout)
		}
		b.empty(t)
	}
}

// TestErrorsInApply: a step that fails leaves the host as it was, or is finished later.
func TestErrorsInApply(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	for _, step := range need.Turn(t, []string{"apply/begun", "apply/made", "snapshot/saved", "apply/staged", "apply/op-0", "apply/done"}) {
		dir := filepath.Join(t.TempDir(), "ws")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		b.Run(t, "create", "--name", "box", "--workspace", dir+":cow")
		b.Run(t, "exec", "box", "--", "sh", "-c", "echo new >new")
		b.arm(t, step+"=error")
		if r := b.Try("apply", "box"); r.Code == 0 {
			t.Errorf("%s: %+v", step, r)
		}
		b.disarm(t)
		b.Run(t, "apply", "box")
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "new" {
			t.Errorf("%s: the host has %v, %v", step, entries, err)
		}
		b.empty(t)
	}
}

// replace puts another directory in the place of dir.
func replace(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o755)
}

// TestKilledMerge: what a run wrote to a cache is in it though the daemon is killed on the way, and
// nothing of the way is left there.
func TestKilledMerge(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "profiles: {fills: {caches: [mine=/mine], merge_caches: true}}\n")
	for _, step := range need.Turn(t, []string{"apply/begun", "apply/made", "apply/staged", "apply/journal", "apply/op-0", "apply/op-1", "apply/done", "apply/cleared"}) {
		b.arm(t, step+"=kill")
		run := begin(t, b.Daemon, "run", "--profile", "fills", "--", "sh", "-c", "cd /mine; echo one >a; mkdir d; echo two >d/b")
		b.died(t, step)
		run.end(t)
		b.AwaitNoSandbox(t)
		if got := b.Run(t, "run", "--cache", "mine=/mine", "--", "sh", "-c", "cd /mine; find . | sort | tr '\\n' ' '; cat a d/b").Stdout; got != ". ./a ./d ./d/b one\ntwo\n" {
			t.Errorf("%s: the cache has %q", step, got)
		}
		if left, err := os.ReadDir(filepath.Join(b.Root, "applies")); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", step, left, err)
		}
		b.Run(t, "volume", "rm", "caisson-cache-mine")
		b.empty(t)
	}
	b.arm(t, "apply/staged=error")
	b.Run(t, "run", "--profile", "fills", "--", "sh", "-c", "echo one >/mine/a")
	b.disarm(t)
	if out := b.Run(t, "events", "--json", "--filter", "type=volume.failed").Stdout; strings.Count(out, "volume.failed") != 1 || !strings.Contains(out, `"volume":"caisson-cache-mine"`) || !strings.Contains(out, `"code":"SBX-`) {
		t.Errorf("events: %s", out)
	}
	if got := b.Run(t, "run", "--cache", "mine=/mine", "--", "find", "/mine").Stdout; got != "/mine\n" {
		t.Errorf("after an error the cache has %q", got)
	}
	b.Run(t, "volume", "rm", "caisson-cache-mine")
}
