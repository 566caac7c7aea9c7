package integration

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// Whatever commands write and are allowed to, the disk of the host takes no more of
// one sandbox than the configuration says, and every exit code is kept.
func TestOutputFitsTheDisk(t *testing.T) {
	t.Parallel()
	const keptMiB = 8 // a tenth of what the commands below may keep by their own limits
	d := harness.StartWith(t, "sandboxes: {kept_output: 8M}\n")
	box(t, d, "loud")
	d.Refused(t, "SBX-102", "exec", "--json", "--output-limit", "1000G", "loud", "--", "true")
	d.Refused(t, "SBX-102", "run", "--json", "--output-limit", "5M", "--", "true")
	flood := []string{"exec", "-d", "--output-limit", "4M", "loud", "--", "sh", "-c", "timeout 2 cat /dev/zero & timeout 2 cat /dev/zero >&2; wait; exit 5"}
	for range 8 {
		d.Run(t, flood...)
	}
	most := int64(0)
	await(t, "the end of the flood", func() bool {
		most = max(most, onDisk(t, filepath.Join(d.Root, "output")))
		running := 0
		for _, j := range ps(t, d, "loud") {
			if j.State == "running" {
				running++
			}
		}
		return running == 0
	})
	if limit := int64(4*keptMiB+8) << 20; most > limit || most < keptMiB<<20 {
		t.Errorf("it took %d MiB, want at most %d", most>>20, limit>>20)
	}
	const whole = 2 * 8 * 3 * 4096 // each stream ends within a page on both sides of its hole, and may have one of extents
	await(t, "the cutting of what ended", func() bool { return onDisk(t, filepath.Join(d.Root, "output")) <= keptMiB<<20+whole })
	for _, j := range ps(t, d, "loud") {
		if r := d.Try("wait", "loud", j.ID); r.Code != 5 {
			t.Errorf("wait %s gave %d\n%s", j.ID, r.Code, r.Stderr)
		}
	}
}

// onDisk is what the files below dir take.
func onDisk(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil // or it has gone
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// Commands of the background that wrote more than is kept of their sandbox take nothing
// from the callers that are attached, and neither do these from each other.
func TestFullRoomTakesNothing(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {kept_output: 8M}\n")
	box(t, d, "loud", "--pids", "512", "-m", "1G")
	for range 3 {
		d.Run(t, "exec", "-d", "loud", "--", "sh", "-c", "head -c 20000000 /dev/zero; sleep 1000")
	}
	await(t, "the floods", func() bool {
		return !slices.ContainsFunc(ps(t, d, "loud"), func(j job) bool { return j.StdoutBytes < 20_000_000 })
	})
	const size = 9 << 20
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			r := d.Try("exec", "loud", "--", "sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size))
			if r.Code != 0 || strings.Count(r.Stdout, "x") != size || len(r.Stdout) != size || r.Stderr != "" {
				t.Errorf("code %d, %d bytes, %q", r.Code, len(r.Stdout), r.Stderr)
			}
		})
	}
	calls.Wait()
}

// What ended is told: its result as long as that is kept, and then that it ended.
func TestResultsOfManyCommands(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {kept_execs: 50}\n")
	box(t, d, "many")
	ids := make([]string, 60)
	for i := range ids {
		ids[i] = strings.TrimSpace(d.Run(t, "exec", "-d", "many", "--", "sh", "-c", "exit 7").Stdout)
	}
	await(t, "their ends", func() bool {
		return !slices.ContainsFunc(ps(t, d, "many"), func(j job) bool { return j.State == "running" })
	})
	for i, id := range ids {
		r := d.Try("wait", "many", id)
		if kept := i >= len(ids)-40; kept && r.Code != 7 || !kept && r.Code != 7 && !strings.Contains(r.Stderr, "SBX-118") {
			t.Errorf("command %s: %d, %q", id, r.Code, r.Stderr)
		}
	}
	if r := d.Try("wait", "many", "1000"); !strings.Contains(r.Stderr, "SBX-115") {
		t.Errorf("a command that never was: %q", r.Stderr)
	}
}
