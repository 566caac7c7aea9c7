package fault

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// A workspace that was moved or deleted while no daemon ran is still mounted in its
// sandbox, which lives on.
func TestWorkspaceGoneWhileAway(t *testing.T) {
	d := harness.StartWith(t, "")
	for name, change := range map[string]func(dir string) error{
		"unchanged": func(string) error { return nil },
		"moved":     func(dir string) error { return os.Rename(dir, dir+"-moved") },
		"replaced":  func(dir string) error { return replace(dir) },
		"deleted":   os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ws")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			d.Run(t, "create", "--name", name, "--workspace", dir)
			pid := initOf(t, d, name)
			d.Kill(t)
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			d.Launch(t)
			if now := initOf(t, d, name); now != pid {
				t.Errorf("PID 1 is %d, was %d", now, pid)
			}
			if r := d.Run(t, "exec", name, "--", "sh", "-c", "cd /workspace && echo on"); r.Stdout != "on\n" {
				t.Errorf("%+v", r)
			}
			d.Run(t, "rm", "--force", name)
			checkSound(t, d)
		})
	}
}

// replace puts another directory in the place of dir.
func replace(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o755)
}
