package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// linked makes a directory and a link to it.
func linked(t *testing.T) (dir, link string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, link = filepath.Join(top, "dir"), filepath.Join(top, "link")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink("dir", link)); err != nil {
		t.Fatal(err)
	}
	return dir, link
}

// TestLinkedDirectories: the root and the state may be links, or be made below one.
func TestLinkedDirectories(t *testing.T) {
	dir, link := linked(t)
	for root, want := range map[string]string{link: dir, filepath.Join(link, "a/b"): filepath.Join(dir, "a/b")} {
		c := Default()
		c.Root, c.State = root, filepath.Join(link, "state")
		given := c.Instance()
		if err := c.Complete(); err != nil {
			t.Fatal(err)
		}
		if c.Root != want || c.State != filepath.Join(dir, "state") {
			t.Errorf("%q became root %q and state %q, want %q", root, c.Root, c.State, want)
		}
		if c.Instance() != given || c.Cgroup.Parent != given {
			t.Errorf("the instance of %q became %q with cgroup %q, want %q", root, c.Instance(), c.Cgroup.Parent, given)
		}
		if want := filepath.Join(link, "state/caisson.sock"); c.Socket != want {
			t.Errorf("the socket became %q, want %q", c.Socket, want)
		}
	}
}

// TestRefusedLinks: a link that leads nowhere, or to the other directory, is refused.
func TestRefusedLinks(t *testing.T) {
	dir, link := linked(t)
	broken := filepath.Join(dir, "broken")
	if err := os.Symlink("absent", broken); err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.Root = filepath.Join(broken, "root")
	err := c.Complete()
	if !errors.Is(err, sbxerr.StateDir) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "root: follow the symbolic links") {
		t.Errorf("below a broken link: %v", err)
	}
	c = Default()
	c.Root, c.State = dir, link
	if err := c.Complete(); !errors.Is(err, sbxerr.DaemonConf) || !strings.Contains(err.Error(), "two directories") {
		t.Errorf("one directory by two names: %v", err)
	}
}
