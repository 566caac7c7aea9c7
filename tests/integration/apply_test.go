package integration

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// applied is the answer of apply.
type applied struct {
	Changes, Control       []struct{ Path string }
	Conflicts, Left, Notes []struct{ Path, Reason string }
}

func decodeApplied(t *testing.T, r harness.Result) (a applied) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Stdout), &a); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	return a
}

func hostHas(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if text == "" != os.IsNotExist(err) || string(got) != text {
			t.Errorf("the host has %q in %s (%v), not %q", got, name, err, text)
		}
	}
}

// TestApply: what a sandbox changed comes to the host with its owner's ids, once, live and
// after the daemon was killed. What the host changed is refused, control files are left out.
//
//caisson:kernel
func TestApply(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "peers: [{uids: [54321]}]\nworkspaces: {control_files: [.git/hooks/**, .envrc]}\n")
	dir := workspace(t, ann, ann)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeTree(t, dir)
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, ann, ann))
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // a tick of the clock of files
	d.Run(t, "create", "--name", "c", "--workspace", dir+":cow")
	d.Run(t, "exec", "c", "--", "sh", "-c", "set -e; echo new > new; echo more >> kept; mkdir moved; mv dir/* moved; rm -r gone dir; rm link; ln -s kept/x link; chmod 700 script; mkdir -p a/b .git/hooks; echo deep > a/b/c; echo hook > .git/hooks/pre-commit; ln -s /etc/passwd out; mkfifo fifo")
	before := treeText(t, dir)
	dry := decodeApplied(t, d.Run(t, "apply", "--dry-run", "--json", "c"))
	if len(dry.Changes) != 12 || len(dry.Control) != 3 || len(dry.Left) != 1 || treeText(t, dir) != before {
		t.Errorf("--dry-run: %+v", dry)
	}
	if diff := d.Run(t, "diff", "c").Stdout; !strings.HasSuffix(diff, "A .git/hooks/ (control file)\nA .git/hooks/pre-commit (control file)\nA out -> /etc/passwd (control file)\n") {
		t.Errorf("diff: %s", diff)
	}
	r := d.Run(t, "apply", "c", "new", "a/b")
	if r.Stdout != "A a/\nA a/b/\nA a/b/c\nA new\n" {
		t.Errorf("paths: %+v", r)
	}
	d.Kill(t)
	d.Launch(t)
	r = d.Run(t, "apply", "c")
	if r.Stdout != "A .git/\nD dir/\nD gone/\nM kept\nM link -> kept/x\nA moved/\nA moved/in\nM script (mode 644 to 700)\n" ||
		!strings.Contains(r.Stderr, "left out without --include-control: A .git/hooks/pre-commit") || !strings.Contains(r.Stderr, "not applied: fifo: a fifo cannot be applied") {
		t.Errorf("the rest: %+v", r)
	}
	hostHas(t, dir, map[string]string{"new": "new\n", "kept": "kept\nmore\n", "moved/in": "in\n", "a/b/c": "deep\n", "gone/x": "", "dir/in": "", ".git/hooks/pre-commit": ""})
	for _, name := range []string{"new", "kept", "a/b", "link"} {
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || ownerOf(st) != ann {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if diff := d.Run(t, "diff", "c").Stdout; diff != "A fifo\nA .git/hooks/ (control file)\nA .git/hooks/pre-commit (control file)\nA out -> /etc/passwd (control file)\n" {
		t.Errorf("diff afterwards: %s", diff)
	}
	d.Run(t, "exec", "c", "--", "sh", "-c", "echo again >> kept; rm new; cat kept moved/in a/b/c")
	if r := d.Run(t, "apply", "c"); r.Stdout != "M kept\nD new\n" {
		t.Errorf("once more: %+v", r)
	}
	d.Run(t, "apply", "--include-control", "c")
	hostHas(t, dir, map[string]string{"kept": "kept\nmore\nagain\n", "new": "", ".git/hooks/pre-commit": "hook\n"})
	d.Run(t, "rm", "--force", "c")
}

// TestApplyConflicts: what the host changed meanwhile is listed, and nothing is applied unless
// a side is chosen.
func TestApplyConflicts(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "")
	dir := t.TempDir()
	writeTree(t, dir)
	time.Sleep(20 * time.Millisecond) // a tick of the clock of files
	d.Run(t, "create", "--name", "c", "--workspace", dir+":cow")
	d.Run(t, "exec", "c", "--", "sh", "-c", "echo sandbox | tee kept script both free; mv gone went")
	for _, name := range []string{"kept", "both"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("host\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before := treeText(t, dir)
	if f := d.Refused(t, "SBX-240", "apply", "-o", "json", "c"); !strings.Contains(f.Error.Message, `"gone" was renamed to "went"`) {
		t.Errorf("%+v", f)
	}
	named := []string{"c", "kept", "script", "both", "free"}
	if f := d.Refused(t, "SBX-239", append([]string{"apply", "-o", "json"}, named...)...); !strings.Contains(f.Error.Message, `2 changes meet changes of the host; "both": the host changed it; "kept": the host changed it`) {
		t.Errorf("%+v", f)
	}
	if treeText(t, dir) != before {
		t.Error("a refused apply changed the host")
	}
	if r := d.Run(t, append([]string{"apply", "--ours"}, named...)...); r.Stdout != "A free\nM script\n" || !strings.Contains(r.Stderr, "the host changed it too: kept") {
		t.Errorf("%+v", r)
	}
	hostHas(t, dir, map[string]string{"kept": "host\n", "both": "host\n", "free": "sandbox\n"})
	d.Run(t, append([]string{"apply", "--theirs"}, named...)...)
	hostHas(t, dir, map[string]string{"kept": "sandbox\n", "both": "sandbox\n"})
	d.Refused(t, "SBX-101", "apply", "-o", "json", "c", "../out")
	d.Refused(t, "SBX-101", "apply", "-o", "json", "c", "unchanged")
	if r := d.Try("apply", "--ours", "--theirs", "c"); r.Code != 125 {
		t.Errorf("%+v", r)
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	d.Refused(t, "SBX-104", "apply", "-o", "json", "c", "free")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d.Run(t, "exec", "c", "--", "sh", "-c", "echo more >> free")
	if f := d.Refused(t, "SBX-104", "apply", "-o", "json", "c", "free"); !strings.Contains(f.Error.Message, "moved or replaced") {
		t.Errorf("%+v", f)
	}
}

// TestApplyIsTheOwners: a user who may read a directory applies nothing to it; its owner does.
func TestApplyIsTheOwners(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "peers: [{uids: [54321]}]\n")
	roots, own := workspace(t, 0, 0), workspace(t, ann, ann)
	for _, dir := range []string{roots, own} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	user := d.User(t, ann)
	user.Run(t, "create", "--name", "roots", "--workspace", roots+":cow")
	user.Run(t, "create", "--name", "own", "--workspace", own+":cow")
	user.Run(t, "exec", "own", "--", "sh", "-c", "echo x > made")
	if f := user.Refused(t, "SBX-805", "apply", "-o", "json", "roots"); !strings.Contains(f.Error.Message, "belongs to uid 0") {
		t.Errorf("%+v", f)
	}
	user.Run(t, "apply", "own")
	hostHas(t, own, map[string]string{"made": "x\n"})
	if st, err := os.Lstat(filepath.Join(own, "made")); err != nil || ownerOf(st) != ann {
		t.Errorf("made: %v, %v", st, err)
	}
}
