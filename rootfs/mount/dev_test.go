package mount

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/need"
)

// TestAttachDev: the nodes work, and are nobody else's.
func TestAttachDev(t *testing.T) {
	need.Root(t, "it makes device nodes")
	dir := t.TempDir()
	if err := AttachDev(dir); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Detach(dir); err != nil {
			t.Error(err)
		}
	}()
	for name := range devices {
		var own, host unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &own); err != nil {
			t.Fatal(err)
		}
		if err := unix.Lstat("/dev/"+name, &host); err != nil {
			t.Fatal(err)
		}
		if own.Rdev != host.Rdev || own.Mode != unix.S_IFCHR|0o666 || own.Dev == host.Dev {
			t.Errorf("%s: %+v, the host's %+v", name, own, host)
		}
	}
	zero, err := os.Open(filepath.Join(dir, "zero"))
	if err != nil {
		t.Fatal(err)
	}
	b := []byte{1}
	if _, err := zero.Read(b); err != nil || b[0] != 0 {
		t.Errorf("read %v, %v", b, err)
	}
	if err := zero.Close(); err != nil {
		t.Error(err)
	}
}

func BenchmarkAttachDev(b *testing.B) {
	need.Root(b, "it makes device nodes")
	dir := b.TempDir()
	for b.Loop() {
		if err := AttachDev(dir); err != nil {
			b.Fatal(err)
		}
		if err := Detach(dir); err != nil {
			b.Fatal(err)
		}
	}
}
