package integration

import (
	"strings"
	"testing"
)

// TestTmpfsIsBounded: a tmpfs is full when its size is used up, or when it holds 100,000
// files. The spec shows both bounds.
func TestTmpfsIsBounded(t *testing.T) {
	spec := daemon.Run(t, "spec", "--tmpfs", "64M", "--", "true").Stdout
	for _, option := range []string{`"size=67108864"`, `"nr_inodes=100000"`} {
		if strings.Count(spec, option) != 5 {
			t.Errorf("the spec has %s %d times, want 5", option, strings.Count(spec, option))
		}
	}
	const create = "cd /tmp && seq 99999 | xargs touch && dd if=/dev/zero of=1 bs=1M count=60 2>/dev/null || exit 9; "
	for _, more := range []string{"touch 100000", "dd if=/dev/zero of=2 bs=1M count=5"} {
		r := daemon.Try("run", "--tmpfs", "64M", "--", "sh", "-c", create+more)
		if r.Code != 1 || !strings.Contains(r.Stderr, "No space left on device") {
			t.Errorf("%s: code %d, %q%q", more, r.Code, r.Stdout, r.Stderr)
		}
	}
}
