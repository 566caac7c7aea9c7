package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/patches"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/workspaces"
	"github.com/caisson-run/caisson/server/servertest"
)

const patch = "diff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n one\n--- two\n+\x1b]0;x\a good\revil\r\n\\ No newline at end of file\n"

// On a terminal a patch has git's colours, unless none are asked for, and nothing in it acts.
func TestPatchOnTerminal(t *testing.T) {
	text.EnableColors()
	want := "\x1b[1mdiff --git a/x b/x\x1b[0m\n\x1b[1mindex 1..2\x1b[0m\n\x1b[1m--- a/x\x1b[0m\n\x1b[1m+++ b/x\x1b[0m\n\x1b[36m@@ -1,2 +1 @@\x1b[0m\n one\n" +
		"\x1b[31m--- two\x1b[0m\n\x1b[32m+\\x1b]0;x\\x07 good\\x0devil\\x0d\x1b[0m\n\\ No newline at end of file\n"
	if got := cli.ShownPatch([]byte(patch)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	text.DisableColors() // as NO_COLOR does
	defer text.EnableColors()
	if got := cli.ShownPatch([]byte(patch)); strings.ContainsRune(got, 0x1b) {
		t.Errorf("%q", got)
	}
}

// Elsewhere a patch is as it is, and what it leaves out is said.
func TestPatch(t *testing.T) {
	f := &servertest.Fake{OfChanges: patches.Patch{Text: []byte(patch), Left: []patches.Note{{Path: "big", Reason: "too large to show"}}, More: true}}
	f.Details = map[string]*runtime.Detail{"c": {}}
	for _, args := range [][]string{{"diff", "--patch", "c"}, {"changes", "show", "--patch", "--include-control", "c"}} {
		code, stdout, stderr := invoke(t, f, "", args...)
		if code != 0 || stdout != patch || !strings.Contains(stderr, "caisson: not in the patch: big: too large to show\n") || !strings.Contains(stderr, "more changes") {
			t.Errorf("%q: %d %q %q", args, code, stdout, stderr)
		}
	}
	if want := []bool{false, true}; !slices.Equal(f.PatchControl, want) {
		t.Errorf("control files: %v", f.PatchControl)
	}
	for _, args := range [][]string{{"diff", "--patch", "--stat", "c"}, {"diff", "--include-control", "c"}} {
		if code, _, stderr := invoke(t, f, "", args...); code != cli.ExitRuntime || !strings.Contains(stderr, "patch") {
			t.Errorf("%q: %d %q", args, code, stderr)
		}
	}
}

// A sandbox that left changes says so when it is removed or stopped, and others do not.
func TestKeptChanges(t *testing.T) {
	f := &servertest.Fake{Changesets: []workspaces.Changeset{{ID: "left"}}}
	f.OnRemove = func(ref string, _ bool) (string, error) { return ref, nil }
	f.OnStop = func(ref string, _ *time.Duration) (runtime.Info, error) {
		return runtime.Info{ID: ref, Workspace: &plan.WorkspaceRequest{Mode: "cow"}}, nil
	}
	for _, verb := range []string{"rm", "stop"} {
		for id, want := range map[string]string{"left": "caisson: its changes are kept: caisson changes show left\n", "other": ""} {
			if code, _, stderr := invoke(t, f, "", verb, id); code != 0 || stderr != want {
				t.Errorf("%s %s: %d %q, want %q", verb, id, code, stderr, want)
			}
		}
	}
}
