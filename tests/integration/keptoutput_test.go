package integration

import (
	"io/fs"
	"path/filepath"
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
	await(t, "the cutting of what ended", func() bool { return onDisk(t, filepath.Join(d.Root, "output")) <= keptMiB<<20 })
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
