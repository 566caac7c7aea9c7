package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A link that is gone or is none is told as what it is.
func TestReadLinkAt(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("target", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{dir: syscall.EINVAL, dir + "/gone": syscall.ENOENT, dir + "/a\x00b": syscall.EINVAL} {
		if target, err := readLinkAt(atCwd, path); target != "" || err != want {
			t.Errorf("%q leads to %q, %v; want %v", path, target, err, want)
		}
	}
	if target, err := readLinkAt(atCwd, dir+"/link"); target != "target" || err != nil {
		t.Errorf("the link leads to %q, %v", target, err)
	}
}
