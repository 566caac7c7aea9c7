package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// gitIn runs git of the host.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example", "-c", "init.defaultBranch=main", "-C", dir}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// repository is one with two commits, files that git ignores, and a change that is in no commit.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	gitIn(t, dir, "init", "-q")
	write(t, filepath.Join(dir, "kept"), "one\n")
	write(t, filepath.Join(dir, "sub/run"), "#!/bin/sh\n")
	write(t, filepath.Join(dir, ".gitignore"), "*.env\nlib/\nlink\n")
	write(t, filepath.Join(dir, ".worktreeinclude"), "dev.env\nlib/\nlink\nuntracked\n")
	gitIn(t, dir, "add", ".")
	gitIn(t, dir, "commit", "-qm", "first")
	gitIn(t, dir, "branch", "old")
	gitIn(t, dir, "switch", "-qc", "topic/it")
	write(t, filepath.Join(dir, "kept"), "two\n")
	gitIn(t, dir, "commit", "-qam", "second")
	gitIn(t, dir, "remote", "add", "origin", "https://me:password@git.example/a/b.git")
	for name, text := range map[string]string{"dev.env": "DEV=1\n", "secret.env": "KEY=x\n", "lib/a b/c": "c\n", "untracked": "u\n", "kept": "three\n"} {
		write(t, filepath.Join(dir, name), text)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCloneWorkspace: a sandbox gets a clone at the commit of the host's repository, which never
// changes. What is listed of the ignored files comes along, and nothing else of the working tree.
//
//caisson:kernel
func TestCloneWorkspace(t *testing.T) {
	daemon.Run(t, "image", "from-host", "git", "--package", "git", "--package", "coreutils", "--package", "dash")
	t.Cleanup(func() { daemon.Run(t, "image", "rm", "git") })
	dir := repository(t)
	t.Run("clone", func(t *testing.T) { clones(t, dir) })
	t.Run("nothing stays", func(t *testing.T) { leavesNothing(t, dir) })
	t.Run("refusals", func(t *testing.T) { refusesToClone(t, dir) })
}

func clones(t *testing.T, dir string) {
	head, status := gitIn(t, dir, "rev-parse", "HEAD"), gitIn(t, dir, "status", "--porcelain")
	daemon.Run(t, "create", "--name", "c", "--image", "git", "--workspace", dir+":clone", "-e", "GIT_DIR=/nowhere")
	t.Cleanup(func() { daemon.Run(t, "rm", "--force", "c") })
	inside := func(script string) string {
		t.Helper()
		return strings.TrimSpace(daemon.Run(t, "exec", "c", "--", "sh", "-ec", "unset GIT_DIR; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "+script).Stdout)
	}
	for script, want := range map[string]string{
		"pwd; git status --porcelain":                              "/workspace",
		"git rev-parse HEAD; git symbolic-ref HEAD":                head + "\nrefs/heads/topic/it",
		"git remote get-url origin":                                "https://git.example/a/b.git",
		"git branch --format='%(refname)' | sort":                  "refs/heads/main\nrefs/heads/old\nrefs/heads/topic/it",
		"cat kept dev.env 'lib/a b/c'; readlink link":              "two\nDEV=1\nc\n/etc/passwd",
		"ls secret.env untracked 2>/dev/null || echo none":         "none",
		"git count-objects; ls .git/host-* 2>/dev/null || echo no": "0 objects, 0 kilobytes\nno",
		"ls -A /var/lib/caisson-clone/source":                      "",
		"touch /var/lib/caisson-clone/objects/x || echo no":        "no",
	} {
		if got := inside(script); got != want {
			t.Errorf("%s: %q, not %q", script, got, want)
		}
	}
	inside("echo mine > kept; git commit -qam mine; git tag mine; git switch -qc other old")
	if now := gitIn(t, dir, "status", "--porcelain"); now != status || gitIn(t, dir, "rev-parse", "HEAD") != head || gitIn(t, dir, "tag") != "" {
		t.Errorf("the host's repository changed:\n%s", now)
	}
	gitIn(t, dir, "gc", "-q", "--prune=now")
	if got := inside("git fsck --no-progress; git gc -q; git log --format=%s topic/it; git switch -q topic/it; cat kept"); got != "mine\nsecond\nfirst\nmine" {
		t.Errorf("after gc on the host: %q", got)
	}
	daemon.Kill(t)
	daemon.Launch(t)
	if got := inside("git status --porcelain; git log --format=%s old"); got != "first" {
		t.Errorf("under the next daemon: %q", got)
	}
	daemon.Refused(t, "SBX-104", "diff", "c", "-o", "json")
	daemon.Refused(t, "SBX-104", "apply", "c", "-o", "json")
	daemon.Refused(t, "SBX-238", "snapshot", "create", "c", "-o", "json")
	daemon.Run(t, "restart", "c")
	if got := inside("git log --format=%s; cat dev.env"); got != "second\nfirst\nDEV=1" {
		t.Errorf("restarted: %q", got)
	}
}

// leavesNothing: a git that leaves a process behind, with the host's repository open, does not get
// it into the life of the sandbox. Without a clone the same program stays.
func leavesNothing(t *testing.T, dir string) {
	root := filepath.Join(t.TempDir(), "root")
	const stays = "setsid sh -c 'cd %s 2>/dev/null; exec sleep 1000' >/dev/null 2>&1 </dev/null &\n"
	write(t, filepath.Join(root, "usr/local/bin/git"), "#!/bin/sh\n"+fmt.Sprintf(stays, "/var/lib/caisson-clone/source")+"case \"$*\" in *config*) exit 1 ;; esac\n")
	if err := os.Chmod(filepath.Join(root, "usr/local/bin/git"), 0o755); err != nil {
		t.Fatal(err)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "sleep", "setsid", "mkdir", "cp", "rm", "cat", "pidof"} {
		write(t, filepath.Join(root, "bin", name), string(program))
		if err := os.Chmod(filepath.Join(root, "bin", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	daemon.Run(t, "image", "import", "--name", "hostile", root)
	t.Cleanup(func() { daemon.Run(t, "image", "rm", "hostile") })
	daemon.Run(t, "create", "--name", "control", "--image", "hostile")
	t.Cleanup(func() { daemon.Run(t, "rm", "--force", "control") })
	if r := daemon.Try("exec", "control", "--", "sh", "-c", "git; sleep 0.2; pidof sleep"); r.Code != 0 {
		t.Fatalf("the program leaves nothing: nothing is shown: %+v", r)
	}
	daemon.Run(t, "create", "--name", "left", "--image", "hostile", "--workspace", dir+":clone")
	t.Cleanup(func() { daemon.Run(t, "rm", "--force", "left") })
	if r := daemon.Try("exec", "left", "--", "sh", "-c", "pidof sleep"); r.Code == 0 {
		t.Errorf("it is there: %s", r.Stdout)
	}
}

func refusesToClone(t *testing.T, dir string) {
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	gitIn(t, dir, "worktree", "add", "-q", at("linked"), "old")
	gitIn(t, base, "clone", "-q", "--bare", dir, at("bare"))
	gitIn(t, base, "clone", "-q", "--shared", dir, at("shared"))
	gitIn(t, base, "init", "-q", at("linkgit"))
	write(t, at("plain/file"), "x\n")
	if err := os.Rename(at("linkgit/.git"), at("moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("moved"), at("linkgit/.git")); err != nil {
		t.Fatal(err)
	}
	gitIn(t, base, "clone", "-q", dir, at("partial"))
	gitIn(t, at("partial"), "config", "extensions.partialClone", "origin")
	for _, name := range []string{"linked", "bare", "shared", "linkgit", "plain", "partial"} {
		t.Run(name, func(t *testing.T) {
			daemon.Refused(t, "SBX-250", "run", "--image", "git", "--workspace", at(name)+":clone", "-o", "json", "--", "true")
		})
	}
	daemon.Refused(t, "SBX-250", "run", "--image", "git", "--workspace", dir+":/srv/x:clone", "-o", "json", "--", "true")
	daemon.Refused(t, "SBX-251", "run", "--image", "base", "--workspace", dir+":clone", "-o", "json", "--", "true")
	daemon.Refused(t, "SBX-238", "run", "--image", "git", "--snapshot-on-end", "s", "--workspace", dir+":clone", "-o", "json", "--", "true")
	shallow := at("shallow")
	gitIn(t, base, "clone", "-q", "--depth", "1", "file://"+dir, shallow)
	if got := daemon.Run(t, "run", "--image", "git", "--workspace", shallow+":clone", "--", "git", "log", "--format=%s").Stdout; got != "second\n" {
		t.Errorf("shallow: %q", got)
	}
	gitIn(t, base, "init", "-q", at("empty"))
	if got := daemon.Run(t, "run", "--image", "git", "--workspace", at("empty")+":clone", "--", "git", "status", "--porcelain", "-b").Stdout; !strings.Contains(got, "No commits yet on main") {
		t.Errorf("without a commit: %q", got)
	}
}

// TestCloneOfAUser: a user other than root gets a clone of what it can read, as itself, and of nothing
// else.
func TestCloneOfAUser(t *testing.T) {
	const ann = 54321
	d := harness.StartWith(t, fmt.Sprintf("peers: [{uids: [%d], limits: {disk: 2G}}]\n", ann))
	d.Run(t, "image", "from-host", "git", "--package", "git", "--package", "coreutils", "--package", "dash")
	user := d.User(t, ann)
	dir, roots := repository(t), repository(t)
	if out, err := exec.CommandContext(t.Context(), "chown", "-R", fmt.Sprint(ann, ":", ann), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const look = "git log --format=%s; git status --porcelain; cat dev.env; echo mine >kept && git -c user.name=a -c user.email=a@b commit -qam mine && git log -1 --format=%s"
	if got := user.Run(t, "run", "--image", "git", "--workspace", dir+":clone", "--", "sh", "-c", look).Stdout; got != "second\nfirst\nDEV=1\nmine\n" {
		t.Errorf("its own: %q", got)
	}
	if got := gitIn(t, dir, "-c", "safe.directory=*", "log", "-1", "--format=%s"); got != "second" {
		t.Errorf("the host's has %q", got)
	}
	got := user.Run(t, "run", "--image", "git", "--workspace", roots+":clone", "--", "git", "log", "-1", "--format=%s").Stdout
	if got != "second\n" {
		t.Errorf("root's, which everybody can read: %q", got)
	}
	if err := os.Chmod(filepath.Join(roots, ".git", "objects"), 0o700); err != nil {
		t.Fatal(err)
	}
	user.Refused(t, "SBX-805", "run", "--image", "git", "--workspace", roots+":clone", "-o", "json", "--", "true")
	if got := d.Run(t, "run", "--image", "git", "--workspace", roots+":clone", "--", "git", "log", "-1", "--format=%s").Stdout; got != "second\n" {
		t.Errorf("for root: %q", got)
	}
	d.Run(t, "image", "rm", "git")
}
