package integration

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// git runs git in a directory, with an input.
func git(t *testing.T, dir, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "safe.directory=*"}, args...)...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// TestPatch: git apply brings what a sandbox changed into another clone of the repository, while
// the sandbox lives and from what it left. What git or a patch cannot take is said.
func TestPatch(t *testing.T) {
	need.Tools(t, "mkfs.ext4", "git")
	t.Parallel()
	d := harness.StartWith(t, "")
	dir := t.TempDir()
	writeTree(t, dir)
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*.o\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "", "init", "-q")
	git(t, dir, "", "add", "-A")
	git(t, dir, "", "commit", "-qm", "one")
	d.Run(t, "create", "--name", "c", "--workspace", dir+":cow")
	if r := d.Run(t, "diff", "--patch", "c"); r.Stdout+r.Stderr != "" {
		t.Errorf("nothing was done: %s%s", r.Stdout, r.Stderr)
	}
	d.Run(t, "exec", "c", "--", "sh", "-c", changeAll+"; ln -sf kept link; echo more >> moved/in; touch -c .gitignore; : >> .gitignore; echo x > .git/x; printf 'a\\0b' > bin; mkfifo fifo; echo export X=1 > .envrc; echo x >> .git/config; head -c 1100000 /dev/zero | tr '\\0' a > large; printf '\\033[31mred' > 'odd\tname'")
	for _, when := range []string{"live", "ended"} {
		ref := []string{"diff", "--patch", "c"}
		if when == "ended" {
			if r := d.Run(t, "rm", "--force", "c"); !strings.Contains(r.Stderr, "caisson: its changes are kept: caisson changes show "+strings.TrimSpace(r.Stdout)+"\n") {
				t.Errorf("rm says %q", r.Stderr)
			}
			ref = []string{"changes", "show", "--patch", "c"}
		}
		r := d.Run(t, ref...)
		for _, want := range []string{"not in the patch: .envrc: control file", "not in the patch: .git: ", "not in the patch: fifo: a patch has no fifo", "not in the patch: large: too large to show", "not in the patch: bin: binary"} {
			if !strings.Contains(r.Stderr, "caisson: "+want) {
				t.Errorf("%s: %q is not in %s", when, want, r.Stderr)
			}
		}
		clone := t.TempDir()
		git(t, clone, "", "clone", "-q", dir, ".")
		git(t, clone, r.Stdout, "apply", "--index", "--exclude=bin")
		got := git(t, clone, "", "-c", "core.quotePath=false", "diff", "--cached", "--stat", "--summary")
		for _, want := range []string{"create mode 100644 a/b/c\n", "delete mode 100644 gone/x\n", "create mode 100644 new\n", "delete mode 100644 dir/in\n", "create mode 100644 moved/in\n", `create mode 100644 "odd\tname"`, "mode change 100644 => 100755 script"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is not in\n%s", when, want, got)
			}
		}
		if strings.Contains(got, "envrc") || strings.Contains(got, "gitignore") {
			t.Errorf("%s: %s", when, got)
		}
		t.Logf("%s\n%s", r.Stdout, r.Stderr)
	}
	var answer struct {
		Patch string
		Left  []struct{ Path, Reason string }
	}
	if err := json.Unmarshal([]byte(d.Run(t, "changes", "show", "--patch", "--include-control", "--json", "c").Stdout), &answer); err != nil {
		t.Fatal(err)
	}
	if text, err := base64.StdEncoding.DecodeString(answer.Patch); err != nil || !strings.Contains(string(text), "+export X=1") || len(answer.Left) != 4 || !strings.Contains(string(text), "rename from dir/in\nrename to moved/in\n") {
		t.Errorf("%s, %v, %v", text, err, answer.Left)
	}
	d.Refused(t, "SBX-107", "diff", "--patch", "-o", "json", "absent")
}

// TestPatchOfOthers: a patch shows nothing of the host's files that the sandbox could not read,
// to its user and to root.
func TestPatchOfOthers(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "peers: [{uids: [54321]}]\n")
	dir := workspace(t, ann, ann)
	user := d.User(t, ann)
	user.Run(t, "create", "--name", "c", "--workspace", dir+":cow")
	user.Run(t, "exec", "c", "--", "sh", "-c", "echo mine > secret; echo mine > known")
	for name, mode := range map[string]os.FileMode{"secret": 0o600, "known": 0o644} { // the host gets them later
		if err := os.WriteFile(filepath.Join(dir, name), []byte("of root: "+name+"\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, run := range map[string]func(testing.TB, ...string) harness.Result{"user": user.Run, "root": d.Run} {
		r := run(t, "diff", "--patch", "c")
		if strings.Contains(r.Stdout, "of root: secret") || !strings.Contains(r.Stdout, "-of root: known") || !strings.Contains(r.Stderr, "secret: it cannot be read") {
			t.Errorf("%s: %s%s", name, r.Stdout, r.Stderr)
		}
	}
}
