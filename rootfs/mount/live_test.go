package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// TestAttachOnOwn: a mount takes the place of an empty one of the sandbox's own. What is not
// empty stays, and so does one whose successor is refused.
func TestAttachOnOwn(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	own := filepath.Join(base, "own")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	root := newRootWith(t, base, nil)
	s := newStand(t, root, own, "rw,nosuid,nodev")
	bare := newStand(t, root).handles(t)["pidfd"]
	w, sandbox := hostDir(t, base), s.handles(t)["pidfd"]
	point := filepath.Join(base, "point")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := w.Attach(point, false, ownerNS(t, w)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := RemovePoint(point); err != nil {
			t.Error(err)
		}
	}()
	before := s.mounts(t, "/workspace")
	refused := func(words string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
		if got := s.mounts(t, "/workspace"); len(got) != 1 || !slices.Equal(got, before) {
			t.Errorf("mounted are %q, before %q", got, before)
		}
	}
	refused("something is mounted", Live{Point: point, Target: "/workspace"}.AttachInto(sandbox))
	refused("invalid argument", Live{Point: point, Target: "/workspace", On: OnOwn}.AttachInto(bare)) // nothing is mounted there
	if err := os.WriteFile(filepath.Join(own, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("directory not empty", Live{Point: point, Target: "/workspace", On: OnOwn}.AttachInto(sandbox))
	if err := os.Remove(filepath.Join(own, "kept")); err != nil {
		t.Fatal(err)
	}
	loose, err := cloneTree(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	refused("lacks the flags", onThrowawayThread(func() error {
		if err := enterMounts(sandbox); err != nil {
			return err
		}
		return loose.attachOn("workspace", false, OnOwn)
	}))
	if err := loose.Close(); err != nil {
		t.Error(err)
	}
	if err := (Live{Point: point, Target: "/workspace", On: OnOwn}).AttachInto(sandbox); err != nil {
		t.Fatal(err)
	}
	if got := s.mounts(t, "/workspace"); len(got) != 1 || slices.Equal(got, before) {
		t.Errorf("mounted are %q", got)
	}
	if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/workspace/hello", s.pid)); err != nil || string(got) != "hello" {
		t.Errorf("hello = %q, %v", got, err)
	}
	if err := (Live{Point: own, Target: "/workspace"}).Restore(sandbox); err != nil {
		t.Fatal(err)
	}
	if got := s.mounts(t, "/workspace"); !slices.Equal(got, before) {
		t.Errorf("restored are %q, before %q", got, before)
	}
	for range 2 {
		if err := (Live{Target: "/workspace"}).Restore(sandbox); err != nil {
			t.Fatal(err)
		}
		if got := s.mounts(t, "/workspace"); len(got) != 0 {
			t.Errorf("mounted are %q", got)
		}
	}
}
