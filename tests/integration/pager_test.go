package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPager: a patch on a terminal is shown by PAGER, and by the client itself where there is no
// such program. One that a person leaves early is no failure.
func TestPager(t *testing.T) {
	dir := workspace(t, 4321, 4321)
	daemon.Run(t, "create", "--name", "paged", "--workspace", dir+":cow")
	t.Cleanup(func() { daemon.Try("rm", "--force", "paged") })
	daemon.Run(t, "exec", "paged", "--", "sh", "-c", "seq 100000 > many")
	for pager, want := range map[string]string{
		"sed s/^/paged:/":      "paged:",
		"cat":                  "100000",
		"caisson-absent-pager": "100000",
		"head -n 7":            "+1",
	} {
		s := onScreenWith(t, []string{"PAGER=" + pager, "NO_COLOR=1"}, "diff", "--patch", "paged")
		if code := s.end(t); code != 0 {
			t.Errorf("%s: exit %d", pager, code)
		}
		s.awaitShown(t, want)
		if shown := s.shown(); strings.Contains(shown, "paged:") != strings.HasPrefix(pager, "sed") {
			t.Errorf("%s: %.300q", pager, shown)
		}
	}
	plain := daemon.Command(t.Context(), "diff", "--patch", "paged")
	plain.Env = append(plain.Env, "PAGER=sed s/^/paged:/")
	if out, err := plain.Output(); err != nil || strings.Contains(string(out), "paged:") || len(out) < 100_000 {
		t.Errorf("to a pipe: %d bytes, %v", len(out), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%s holds %v, %v", filepath.Base(dir), left, err)
	}
}
