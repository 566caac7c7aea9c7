package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

type sandboxStats struct {
	Name            string
	State           string
	CPUPercent      float64 `json:"cpu_percent"`
	CPU             harness.Duration
	MemoryBytes     int64  `json:"memory_bytes"`
	PeakMemoryBytes *int64 `json:"peak_memory_bytes"`
	PIDs            int64
	Processes       int64
	PIDsLimit       int64    `json:"pids_limit"`
	IOReadBytes     *int64   `json:"io_read_bytes"`
	IOWriteBytes    *int64   `json:"io_write_bytes"`
	CPUPressure     *float64 `json:"cpu_pressure"`
}

// statsOf is one answer of caisson stats, by name.
func statsOf(t *testing.T, d *harness.Daemon, args ...string) map[string]sandboxStats {
	t.Helper()
	stats := map[string]sandboxStats{}
	r := d.Run(t, append([]string{"stats", "--no-stream", "--json"}, args...)...)
	var answer struct{ Sandboxes []sandboxStats }
	r.JSON(t, &answer)
	for _, s := range answer.Sandboxes {
		stats[s.Name] = s
	}
	return stats
}

// A sandbox that burns a fifth of a CPU shows 20 %, one that allocates 64 MiB shows them, and one
// that does nothing shows neither. What they used is known after their end.
func TestStatistics(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	for _, name := range []string{"burner", "eater", "idle"} {
		d.Run(t, "create", "--name", name, "--session", "s-"+name, "--cpus", "0.2", "-m", "256M")
	}
	before := statsOf(t, d)
	if e := before["eater"]; e.Processes != 1 || e.PIDs < 2 { // PID 1, which has threads
		t.Errorf("%d processes, %d tasks", e.Processes, e.PIDs)
	}
	if len(before) != 3 || before["burner"].CPUPercent > 15 || before["eater"].MemoryBytes > 32<<20 || before["eater"].PIDs < 1 || before["eater"].PIDsLimit < 1 {
		t.Fatalf("at first: %+v", before)
	}
	d.Run(t, "exec", "-d", "burner", "--", "sh", "-c", "while :; do :; done")
	d.Run(t, "exec", "eater", "--", "sh", "-c", "head -c 67108864 /dev/zero > /dev/shm/x")
	// Others may use the CPUs, but hardly leave less than a fifth of one.
	await(t, "a fifth of a CPU", func() bool { c := statsOf(t, d)["burner"].CPUPercent; return c > 15 && c < 25 })
	await(t, "64 MiB", func() bool { n := statsOf(t, d)["eater"].MemoryBytes; return n >= 64<<20 && n < 96<<20 })
	now := statsOf(t, d)
	if n := now["burner"].Processes; n != 2 {
		t.Errorf("the burner has %d processes, want PID 1 and the shell", n)
	}
	if now["idle"].CPUPercent > 15 || now["idle"].MemoryBytes > 32<<20 {
		t.Errorf("the idle one: %+v", now["idle"])
	}
	if _, err := os.Stat("/proc/pressure"); err == nil && now["burner"].CPUPressure == nil {
		t.Log("this host has no cgroup2 hierarchy: no pressure")
	}
	if one := statsOf(t, d, "--session", "s-idle"); len(one) != 1 || one["idle"].Name != "idle" {
		t.Errorf("of one session: %+v", one)
	}
	d.Run(t, "exec", "eater", "--", "rm", "/dev/shm/x")
	d.Run(t, "stop", "--grace", "0s", "eater", "burner")
	ended := statsOf(t, d, "eater", "burner")
	if e := ended["eater"]; e.State != "exited" || e.MemoryBytes != 0 || e.PeakMemoryBytes == nil || *e.PeakMemoryBytes < 64<<20 {
		t.Errorf("the eater after its end: %+v", e)
	}
	if ended["burner"].CPU.Milliseconds() < 100 {
		t.Errorf("the burner after its end: %+v", ended["burner"])
	}
	if live := statsOf(t, d); len(live) != 1 {
		t.Errorf("live: %+v", live)
	}
	var h struct {
		Samples []struct {
			Time        time.Time
			CPUPercent  float64 `json:"cpu_percent"`
			MemoryBytes int64   `json:"memory_bytes"`
		}
	}
	d.Run(t, "history", "--json", "eater").JSON(t, &h)
	var most int64
	for _, s := range h.Samples {
		most = max(most, s.MemoryBytes)
	}
	if most < 64<<20 {
		t.Errorf("the history of the eater has %d bytes at most: %+v", most, h)
	}
	if drawn := d.Run(t, "history", "burner").Stdout; !strings.Contains(drawn, "CPU %, limit 20") || !strings.Contains(drawn, "exited") || !strings.Contains(drawn, "╭") && !strings.Contains(drawn, "┼") {
		t.Errorf("drawn:\n%s", drawn)
	}
	d.Refused(t, "SBX-107", "stats", "--json", "absent")
	d.Refused(t, "SBX-107", "history", "--json", "absent")
	d.Run(t, "rm", "--force", "burner", "eater", "idle")
}

// Writes to a disk are counted, or said not to be: cgroup v1 charges them to the host.
func TestStatisticsOfWrites(t *testing.T) {
	dir := workspace(t, 1000, 1000)
	daemon.Run(t, "create", "--name", "writer", "--workspace", dir)
	t.Cleanup(func() { daemon.Try("rm", "--force", "writer") })
	first := statsOf(t, daemon, "writer")["writer"]
	daemon.Run(t, "exec", "writer", "--", "sh", "-c", "head -c 8388608 /dev/urandom > /workspace/x; sync /workspace/x")
	if i, err := os.Stat(filepath.Join(dir, "x")); err != nil || i.Size() != 8<<20 {
		t.Fatalf("it wrote nothing: %v", err)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		if first.IOWriteBytes != nil {
			t.Errorf("with cgroup v1 writes are counted: %+v", first)
		}
		return
	}
	await(t, "the writes", func() bool {
		s := statsOf(t, daemon, "writer")["writer"]
		return s.IOWriteBytes != nil && *s.IOWriteBytes >= 8<<20
	})
}

// What a profile asks for becomes an event, once.
func TestAlerts(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "profiles: {strict: {alerts: {memory: {above: 20%, for: 1s}, tmpfs: {above: 80%}}}}\n")
	d.Run(t, "create", "--name", "eater", "-m", "256M")
	d.Run(t, "create", "--name", "idle", "-m", "256M")
	raised := func() string { return d.Run(t, "events", "--filter", "type=alert.*").Stdout }
	if said := raised(); said != "" {
		t.Fatalf("at first: %s", said)
	}
	d.Run(t, "exec", "eater", "--", "sh", "-c", "head -c 67108864 /dev/zero > /dev/shm/x")
	await(t, "an alert", func() bool { return strings.Contains(raised(), "alert.raised") })
	time.Sleep(2 * time.Second) // for a second one
	if said := raised(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "eater") || !strings.Contains(said, "limit=memory") || !strings.Contains(said, "of the limit, the alert is above 20% for 1s") {
		t.Errorf("%s", said)
	}
	// Into a tmpfs of its own, below the threshold, then above.
	d.Run(t, "create", "--name", "writer", "-m", "256M", "--mount", "type=tmpfs,target=/scratch,size=16M")
	fill := func(mib int) {
		d.Run(t, "exec", "writer", "--", "sh", "-c", fmt.Sprintf("head -c %d /dev/zero > /scratch/x", mib<<20))
	}
	of := func() string {
		return d.Run(t, "events", "--filter", "type=alert.*", "--filter", "sandbox=writer").Stdout
	}
	fill(8)
	time.Sleep(2 * time.Second) // for one that must not be
	if said := of(); said != "" {
		t.Errorf("half full: %s", said)
	}
	fill(15)
	await(t, "an alert of the tmpfs", func() bool { return of() != "" })
	if said := of(); !strings.Contains(said, "limit=tmpfs") || !strings.Contains(said, "93.8% of the size of /scratch, the alert is above 80%") {
		t.Errorf("%s", said)
	}
	d.Run(t, "rm", "--force", "eater", "idle", "writer")
}
