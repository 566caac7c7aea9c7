package fault

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// TestKilledClone: a daemon that dies, or fails, while git makes the clone of a sandbox, or after it,
// leaves no sandbox and the host's repository as it was. The repeated request gives a whole clone.
func TestKilledClone(t *testing.T) {
	need.Tools(t, "mkfs.ext4", "git")
	b := newBreakable(t, "")
	b.Run(t, "image", "from-host", "git", "--package", "git", "--package", "coreutils", "--package", "dash")
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example", "-C", dir}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	git("init", "-q")
	if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("kept\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("add", ".")
	git("commit", "-qm", "first")
	refs := git("for-each-ref")
	for _, step := range []string{"cloning", "clone"} {
		for how, create := range map[string]func(*testing.T, string, ...string){"kill": b.createKilled, "error": b.createFailed} {
			t.Run(step+" "+how, func(t *testing.T) {
				create(t, step, "--image", "git", "--workspace", dir+":clone")
				if out := b.Run(t, "exec", "made", "--", "sh", "-c", "cat kept; git status --porcelain; git log --format=%s; ls -A /var/lib/caisson-clone/source").Stdout; out != "kept\nfirst\n" {
					t.Errorf("the clone has %q", out)
				}
				b.empty(t)
			})
		}
	}
	if now := git("for-each-ref") + git("status", "--porcelain"); now != refs {
		t.Errorf("the host's repository has %q, had %q", now, refs)
	}
	b.Run(t, "image", "rm", "git")
}
