package integration

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestLinkedDirectories: a daemon works on a root that is a symbolic link and a state
// below one. A later daemon adopts its sandboxes there, and nothing is left at the end.
func TestLinkedDirectories(t *testing.T) {
	d := harness.New(t)
	real := harness.Daemon{Root: d.Root, State: d.State}
	links := t.TempDir()
	d.Root, d.State = filepath.Join(links, "root"), filepath.Join(links, "state/s")
	for link, to := range map[string]string{d.Root: real.Root, filepath.Dir(d.State): real.State} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(real.State, 0o711); err != nil { // the ids of sandboxes pass it
		t.Fatal(err)
	}
	d.Socket = filepath.Join(d.State, "caisson.sock")
	keepsOverAKill(t, d)
	d.CheckNothingLeft(t)
	real.State = filepath.Join(real.State, "s")
	real.CheckNothingLeft(t) // the kernel's lists have the names without links
}

// TestMountedDirectories: the root and the state of a daemon may be mount points. A later
// daemon adopts its sandboxes there, and nothing is left at the end.
func TestMountedDirectories(t *testing.T) {
	d := harness.New(t)
	for _, dir := range []string{d.Root, d.State} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256m,mode=700"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Errorf("unmount %s: %v", dir, err)
			}
		})
	}
	keepsOverAKill(t, d)
	for _, dir := range []string{d.Root, d.State} { // that which the test made is no mount of the daemon
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o711 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
}

// keepsOverAKill starts d. The daemon after it adopts a sandbox, and stops.
func keepsOverAKill(t *testing.T, d *harness.Daemon) {
	t.Helper()
	d.Launch(t)
	d.Run(t, "create", "--name", "a")
	d.Run(t, "exec", "a", "--", "touch", "/tmp/kept")
	d.Kill(t)
	d.Launch(t)
	d.Run(t, "exec", "a", "--", "test", "-f", "/tmp/kept")
	d.Run(t, "rm", "--force", "a")
	d.Stop(t)
}
