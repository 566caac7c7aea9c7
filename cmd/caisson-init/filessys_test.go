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

// What the kernel fills in arrives also where the stack of the caller has to
// grow on the way to the call, which moves it.
func TestStatAtOnASmallStack(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("target", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for depth := range 300 {
		done := make(chan struct{})
		go func() { // on a new stack
			defer close(done)
			descend(depth, func() {
				if stat, err := statAt(atCwd, dir, 0); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFDIR {
					t.Errorf("%d calls deep, a directory has mode %o, %v", depth, stat.Mode, err)
				}
			})
			descend(depth, func() {
				if target, err := readLinkAt(atCwd, dir+"/link"); target != "target" || err != nil {
					t.Errorf("%d calls deep, a link leads to %q, %v", depth, target, err)
				}
			})
		}()
		<-done
	}
}

//go:noinline
func descend(depth int, f func()) int {
	if depth == 0 {
		f()
		return 0
	}
	return 1 + descend(depth-1, f)
}
