package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestOrphansAtIntervals: what belongs to no sandbox is removed while the daemon runs. What
// stays is counted: orphans, and what the daemon did not make beside them.
func TestOrphansAtIntervals(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {clean_every: 1s}\n")
	name := box(t, d, "stays")
	const orphan = "abcdefghijklmnopqrstuvwx23"
	inState, output := filepath.Join(d.State, "sandboxes", orphan), filepath.Join(d.Root, "output", orphan)
	counts := func(orphans, skipped int) {
		t.Helper()
		want := fmt.Sprintf("caisson_orphaned_sandboxes %d", orphans) + "\n"
		await(t, want, func() bool {
			_, text := scrape(t, d, "/metrics")
			return strings.Contains(text, "\n"+want) && strings.Contains(text, fmt.Sprintf("\ncaisson_quarantined %d\n", skipped))
		})
	}
	gone := func() {
		t.Helper()
		await(t, "the end of the orphan", func() bool {
			_, stateErr := os.Lstat(inState)
			_, outputErr := os.Lstat(output)
			return os.IsNotExist(stateErr) && os.IsNotExist(outputErr)
		})
	}
	counts(0, 0)
	for _, dir := range []string{inState, output} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	gone()
	foreign := filepath.Join(d.State, "sandboxes", "notes")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	counts(0, 1)
	if err := os.MkdirAll(filepath.Join(output, "kept", "by hand"), 0o700); err != nil {
		t.Fatal(err)
	}
	counts(1, 2)
	if n := strings.Count(d.Log(), "skip what cannot be removed"); n != 2 {
		t.Errorf("%d lines of the log for two that are skipped", n)
	}
	for _, path := range []string{foreign, filepath.Join(output, "kept")} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	counts(0, 0)
	gone()
	if r := d.Try("exec", name, "--", "true"); r.Code != 0 {
		t.Errorf("the sandbox beside it: %d %s", r.Code, r.Stderr)
	}
}
