package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The note names the mount with which git works inside, and is silent where git works.
func TestLinkedGit(t *testing.T) {
	dir := t.TempDir()
	tree, repository := filepath.Join(dir, "tree"), filepath.Join(dir, "repo", ".git")
	for _, args := range [][]string{
		{"init", "-q", "repo"},
		{"-C", "repo", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"},
		{"-C", "repo", "worktree", "add", "-q", tree},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v, %s", args, err, out)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "odd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "odd", ".git"), []byte("gitdir: /nonexistent"), 0o644); err != nil {
		t.Fatal(err)
	}
	mount := "type=bind,target=" + repository + ",source=" + repository
	for _, tt := range []struct {
		args  []string
		noted bool
	}{
		{[]string{"--workspace", tree}, true},
		{[]string{"--workspace", tree, "--mount", mount}, false},
		{[]string{"--workspace", filepath.Join(dir, "repo")}, false},
		{[]string{"--workspace", filepath.Join(dir, "odd")}, false},
		{nil, false},
	} {
		_, _, r := invoke(t, sample(), "", append(append([]string{"run"}, tt.args...), "--", "true")...)
		if got := strings.Contains(r, "is a linked git worktree; git inside needs --mount "+mount); got != tt.noted {
			t.Errorf("%q: %q", tt.args, r)
		}
	}
}
