package mount

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/need"
)

// TestAttachOwn: the nodes work, and are nobody else's; the file for the ends of
// commands takes no more than it may.
func TestAttachOwn(t *testing.T) {
	need.Root(t, "it makes device nodes")
	dir := t.TempDir()
	if err := AttachOwn(dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Detach(dir); err != nil {
			t.Error(err)
		}
	}()
	for name := range devices {
		var own, host unix.Stat_t
		if err := unix.Lstat(filepath.Join(DevDir(dir), name), &own); err != nil {
			t.Fatal(err)
		}
		if err := unix.Lstat("/dev/"+name, &host); err != nil {
			t.Fatal(err)
		}
		if own.Rdev != host.Rdev || own.Mode != unix.S_IFCHR|0o666 || own.Dev == host.Dev {
			t.Errorf("%s: %+v, the host's %+v", name, own, host)
		}
	}
	zero, err := os.Open(filepath.Join(DevDir(dir), "zero"))
	if err != nil {
		t.Fatal(err)
	}
	b := []byte{1}
	if _, err := zero.Read(b); err != nil || b[0] != 0 {
		t.Errorf("read %v, %v", b, err)
	}
	ends, err := os.OpenFile(EndsFile(dir), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(struct{ io.Writer }{ends}, struct{ io.Reader }{zero}) // zero never ends
	if !errors.Is(err, unix.ENOSPC) || n == 0 || n > 1<<20 {
		t.Errorf("%d bytes were written, %v", n, err)
	}
	if err := errors.Join(zero.Close(), ends.Close()); err != nil {
		t.Error(err)
	}
}

func BenchmarkAttachOwn(b *testing.B) {
	need.Root(b, "it makes device nodes")
	dir := b.TempDir()
	for b.Loop() {
		if err := AttachOwn(dir, 1<<20); err != nil {
			b.Fatal(err)
		}
		if err := Detach(dir); err != nil {
			b.Fatal(err)
		}
	}
}
