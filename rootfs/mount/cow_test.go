package mount

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/tests/need"
)

// cowIn is a workspace with the two layers in base, ready to be attached.
func cowIn(t *testing.T, base string) (c Cow, lower string) {
	t.Helper()
	c = Cow{Dir: base, Lower: "lower", Changes: "changes", Target: filepath.Join(base, "target"), Base: testBase}
	lower = filepath.Join(base, c.Lower)
	for _, dir := range []string{lower, filepath.Join(base, c.Changes), c.Target} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := Detach(c.Target); err != nil {
			t.Error(err)
		}
	})
	if err := c.prepare(lower); err != nil {
		t.Fatal(err)
	}
	return c, lower
}

// TestCowIsNeverReadOnly: an overlay that the kernel makes read-only without a word is refused,
// and nothing stays. Here it cannot clear what an earlier mount left in its work directory.
func TestCowIsNeverReadOnly(t *testing.T) {
	need.Root(t, "it mounts an overlay")
	c, lower := cowIn(t, realTemp(t))
	if err := c.attach(lower); err != nil {
		t.Fatalf("as it is: %v", err)
	}
	if err := os.WriteFile(filepath.Join(c.Target, "made"), nil, 0o600); err != nil {
		t.Fatalf("write to it: %v", err)
	}
	if err := Detach(c.Target); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(c.Dir, c.Changes, workName)
	if err := owndir.RemoveTree(work); err != nil {
		t.Fatal(err)
	}
	stuck := filepath.Join(work, "work", "file")
	if err := os.MkdirAll(filepath.Dir(stuck), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stuck, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	setImmutable(t, stuck)
	err := c.attach(lower)
	if err == nil || !strings.Contains(err.Error(), "made the overlay read-only") {
		t.Errorf("attached where nothing can be written: %v", err)
	}
	if mounted, err := IsPoint(c.Target); err != nil || mounted {
		t.Errorf("after the refusal: mounted %v, %v", mounted, err)
	}
}

// immutable is FS_IMMUTABLE_FL (ioctl_iflags(2)).
const immutable = 0x10

// setImmutable makes a file one that not even root can remove (chattr(1)), until the test ends.
func setImmutable(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|immutable)
	}
	if err != nil {
		need.Missing(t, "a file system with immutable files: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A workspace belongs inside to whom the host's directory belongs, or to nobody.
func TestCowOwner(t *testing.T) {
	c := Cow{Base: 1 << 20}
	for id, want := range map[uint32]int{1<<20 + 1000: 1<<20 + 1000, 65534: 1<<20 + 65534} {
		if got := c.inside(id); got != want {
			t.Errorf("%d is %d inside, want %d", id, got, want)
		}
	}
}
