package peer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// inside is the grant of a caller inside of a sandbox with this workspace.
func inside(t *testing.T, w *Workspace) Grant {
	t.Helper()
	g, err := policy(t, rule(func(*Rule) {})).GrantNested(User(70000, 70000, nil, 1).In("p1"), parent(func(p *Parent) { p.Workspace = w }))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A child gets directories of its parent's workspace by their names inside, and no others.
func TestNameInside(t *testing.T) {
	g := inside(t, &Workspace{Held: "/held", Path: "/workspace"})
	for _, dir := range []string{"/workspace", "/workspace/a/b"} {
		if err := g.NameWorkspace(dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		refused(t, "a mount of "+dir, g.NameBind(dir), sbxerr.Peer, "no directories of the host")
	}
	for _, dir := range []string{"/", "/held", "/workspaces", "/etc"} {
		refused(t, dir, g.NameWorkspace(dir), sbxerr.Peer, "outside of its workspace")
	}
	for _, dir := range []string{"", "workspace", "/workspace/../etc", "/workspace/", "/workspace/a\x00b"} {
		refused(t, dir, g.NameWorkspace(dir), sbxerr.Workspace, "clean absolute path")
	}
	refused(t, "without a workspace", inside(t, nil).NameWorkspace("/workspace"), sbxerr.Peer, "no workspace")
	_, err := inside(t, &Workspace{Held: "/held", Path: "/workspace", ReadOnly: true}).CheckWorkspace(t.Context(), "/workspace", true)
	refused(t, "write to a read-only workspace", err, sbxerr.Peer, "is read-only")
}

// A directory is opened beneath the held mount, with the rights of the ids on disk alone.
func TestOpenInside(t *testing.T) {
	need.Root(t, "mounts a directory")
	const owner = testUID
	base, err := os.MkdirTemp("", "caisson-peer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	dir, held := filepath.Join(base, "dir"), filepath.Join(base, "held")
	errs := []error{os.Mkdir(held, 0o700)}
	for _, name := range []string{"own", "own/deep", "roots", "shut", "shut/open"} {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	errs = append(errs, os.Chown(dir, owner, owner), os.Chown(filepath.Join(dir, "own"), owner, owner), os.Chmod(filepath.Join(dir, "shut"), 0o700),
		os.Chmod(filepath.Join(dir, "shut/open"), 0o777), os.Chmod(filepath.Join(dir, "roots"), 0o777), os.Symlink("own", filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	g := inside(t, &Workspace{Held: held, Path: "/workspace", UID: owner, GID: owner})
	open := func(name string, write bool) error {
		d, err := g.CheckWorkspace(t.Context(), filepath.Join("/workspace", name), write)
		if err != nil {
			return err
		}
		if d.UID != owner || d.GID != owner {
			t.Errorf("%s: ids %d:%d", name, d.UID, d.GID)
		}
		return d.Close()
	}
	refused(t, "nothing is mounted", open("own", false), sbxerr.Workspace, "is gone")
	if err := unix.Mount(dir, held, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(held, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"", "own"} {
		if err := errors.Join(open(name, true), open(name, false)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := errors.Join(open("own/deep", false), open("roots", false)); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		name  string
		write bool
		code  sbxerr.Code
		says  string
	}{
		{"shut/open", false, sbxerr.Peer, "may not read"},
		{"own/deep", true, sbxerr.Peer, "may not write"},
		{"roots", true, sbxerr.Peer, "belongs to somebody else"},
		{"link", false, sbxerr.Workspace, "symbolic link"},
		{"link/deep", false, sbxerr.Workspace, "symbolic link"},
		{"file", false, sbxerr.Workspace, "not a directory"},
		{"absent", false, sbxerr.Workspace, "does not exist"},
	} {
		refused(t, tt.name, open(tt.name, tt.write), tt.code, tt.says)
	}
	if err := unix.Mount(filepath.Join(dir, "own"), filepath.Join(held, "roots"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(filepath.Join(held, "roots"), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	refused(t, "another mount", open("roots", false), sbxerr.Workspace, "open directory")
}
