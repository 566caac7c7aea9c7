package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// liveShares is what the kernel has for the sandbox: cpu.shares, or cpu.weight on v2.
func liveShares(t *testing.T, d *harness.Daemon, ref string) string {
	t.Helper()
	group := inspect(t, d, ref).Cgroup
	for _, file := range []string{filepath.Join("/sys/fs/cgroup/cpu", group, "cpu.shares"), filepath.Join("/sys/fs/cgroup", group, "cpu.weight")} {
		if text, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	t.Fatalf("group %s has no CPU weight", group)
	return ""
}

// CPU shares are the kernel's, of a ready sandbox too, and a peer may take no more than
// the operator lets it.
func TestCPUShares(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "profiles: {heavy: {cpu_shares: 4096}}\npeers: [{uids: [54321]}]\npools: [{size: 1}]\n")
	values := map[string]string{"": "1024", "2": "2", "512": "512", "262144": "262144"}
	if _, err := os.Stat("/sys/fs/cgroup/cpu.weight"); err == nil {
		values = map[string]string{"": "100", "2": "1", "512": "59", "262144": "10000"}
	}
	for asked, want := range values {
		awaitReady(t, d, 1)
		hits := poolOf(t, d).Hits
		var flags []string
		if asked != "" {
			flags = []string{"--cpu-shares", asked}
		}
		box(t, d, "s", flags...)
		if poolOf(t, d).Hits != hits+1 {
			t.Errorf("shares %q: not from the pool", asked)
		}
		if got := liveShares(t, d, "s"); got != want {
			t.Errorf("shares %q: the kernel has %s, want %s", asked, got, want)
		}
		d.Run(t, "rm", "--force", "s")
	}
	box(t, d, "h", "--profile", "heavy")
	if got := d.Run(t, "inspect", "h", "-o", "json").Stdout; !strings.Contains(got, `"cpu_shares":4096`) {
		t.Errorf("a profile's shares: %s", got)
	}
	d.Run(t, "update", "--cpu-shares", "512", "h")
	if got := liveShares(t, d, "h"); got != values["512"] {
		t.Errorf("updated: the kernel has %s, want %s", got, values["512"])
	}
	for _, bad := range []string{"0", "1", "262145"} {
		d.Refused(t, "SBX-102", "create", "-o", "json", "--cpu-shares", bad)
		d.Refused(t, "SBX-102", "update", "-o", "json", "--cpu-shares", bad, "h")
	}
	d.Kill(t)
	d.Launch(t)
	if got := liveShares(t, d, "h"); got != values["512"] {
		t.Errorf("after a restart: the kernel has %s, want %s", got, values["512"])
	}
	bin := d.User(t, ann)
	bin.Run(t, "create", "--name", "a")
	bin.Run(t, "update", "--cpu-shares", "2", "a")
	bin.Refused(t, "SBX-805", "update", "-o", "json", "--cpu-shares", "1025", "a")
	bin.Run(t, "run", "--cpu-shares", "1024", "--", "true")
	bin.Refused(t, "SBX-805", "run", "-o", "json", "--cpu-shares", "1025", "--", "true")
}
