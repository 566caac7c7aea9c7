package ctrd

import (
	"os"
	"path/filepath"
	"testing"
)

// What the server keeps of a container goes, but for a root file system, and nothing
// of another.
func TestDropBundle(t *testing.T) {
	state, root := t.TempDir(), t.TempDir()
	e := &Engine{cfg: EngineConfig{Namespace: "ns", Bundles: []string{state, root}}}
	lay := func(parts ...string) string {
		path := filepath.Join(parts...)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gone := func(path string) bool { _, err := os.Stat(path); return os.IsNotExist(err) }
	bundle, work := lay(state, "ns", "box"), lay(root, "ns", "box", "more")
	lay(bundle, "rootfs")
	file := filepath.Join(lay(state, "ns", "full", "rootfs"), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"box", "absent", "", ".", ".."} {
		if err := e.dropBundle(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	if !gone(bundle) || !gone(work) || gone(file) {
		t.Errorf("gone: the bundle %v, its work directory %v, the file of another %v", gone(bundle), gone(work), gone(file))
	}
	if err := e.dropBundle("full"); err == nil || gone(file) {
		t.Errorf("a root file system with something in it: %v", err)
	}
}
