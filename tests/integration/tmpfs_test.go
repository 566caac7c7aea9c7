package integration

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
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

// TestShmSize: /dev/shm has a size of its own, in a ready sandbox too, and a peer's ceiling
// of a tmpfs holds for it.
func TestShmSize(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "profiles: {small: {shm_size: 2M}}\npeers: [{uids: [54321], limits: {memory: 1G, tmpfs: 600M}, profiles: [small]}]\npools: [{size: 1}]\n")
	awaitReady(t, d, 1)
	hits := poolOf(t, d).Hits
	const look = "df -k /dev/shm /tmp | awk 'NR > 1 {print $2}'"
	if got := d.Run(t, "run", "--shm-size", "1M", "-m", "64M", "--", "sh", "-c", look).Stdout; got != "1024\n32768\n" {
		t.Errorf("from the pool: %q", got)
	}
	if poolOf(t, d).Hits != hits+1 {
		t.Error("it was not from the pool")
	}
	box(t, d, "s", "--profile", "small")
	d.Kill(t)
	d.Launch(t)
	if got := d.Run(t, "exec", "s", "--", "sh", "-c", look).Stdout; got != "2048\n262144\n" {
		t.Errorf("of a profile, after a restart: %q", got)
	}
	if got := d.Run(t, "exec", "s", "--", "sh", "-c", "head -c 3000000 /dev/zero > /dev/shm/x || echo full").Stdout; got != "full\n" {
		t.Errorf("more than it holds: %q", got)
	}
	if got := d.Run(t, "run", "--profile", "small", "--shm-size", "4M", "--", "sh", "-c", look).Stdout; got != "4096\n262144\n" {
		t.Errorf("instead of the profile's: %q", got)
	}
	for _, bad := range []string{"0", "1K", "2T"} {
		d.Refused(t, "SBX-102", "run", "-o", "json", "--shm-size", bad, "--", "true")
	}
	user := d.User(t, ann)
	user.Run(t, "run", "--shm-size", "600M", "--", "true")
	user.Refused(t, "SBX-805", "run", "-o", "json", "--shm-size", "601M", "--", "true")
}
