package owndir

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/need"
)

// elsewhere makes a directory with a file in it, which nothing here may lose.
func elsewhere(t *testing.T) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "file")
	write(t, file)
	return dir, file
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func there(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func link(t *testing.T, to string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNothingIsDoneBehindALink does with each function what os would do to the file
// behind a link; the control shows that os does it.
func TestNothingIsDoneBehindALink(t *testing.T) {
	for name, do := range map[string]struct{ ours, control func(path string) error }{
		"remove": {func(p string) error { return Remove(p) }, os.Remove},
		"rename": {func(p string) error { return Rename(p, "other") }, func(p string) error { return os.Rename(p, p+"2") }},
		"mode":   {func(p string) error { return Give(p, 0o666, -1, -1) }, func(p string) error { return os.Chmod(p, 0o666) }},
		"tree":   {func(p string) error { return RemoveTree(filepath.Dir(p)) }, func(p string) error { return os.RemoveAll(p) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir, file := elsewhere(t)
			before, err := os.Lstat(file)
			if err != nil {
				t.Fatal(err)
			}
			through := filepath.Join(link(t, dir), "file")
			if err := do.ours(through); err == nil {
				t.Error("it went through a link")
			}
			if now, err := os.Lstat(file); err != nil || now.Mode() != before.Mode() {
				t.Errorf("the file behind the link changed: %v, %v", now, err)
			}
			if err := do.control(through); err != nil {
				t.Fatal(err)
			}
			if now, err := os.Lstat(file); err == nil && now.Mode() == before.Mode() {
				t.Error("control: the function of os did nothing either")
			}
		})
	}
}

func TestRemoveFlatRemovesWhatItMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "flat")
	if err := Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "1.stdout"))
	if left, err := RemoveFlat(dir); err != nil || len(left) > 0 || there(t, dir) {
		t.Errorf("left %v, %v", left, err)
	}
	if left, err := RemoveFlat(dir); err != nil || len(left) > 0 {
		t.Errorf("absent: left %v, %v", left, err)
	}
}

func TestRemoveFlatLeavesALink(t *testing.T) {
	dir, file := elsewhere(t)
	at := link(t, dir)
	left, err := RemoveFlat(at)
	if err != nil || !slices.Equal(left, []string{at}) || !there(t, file) || !there(t, at) {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestRemoveFlatLeavesWhatOthersMade(t *testing.T) {
	dir, file := elsewhere(t)
	odd := filepath.Join(dir, "odd")
	if err := os.Symlink(file, odd); err != nil {
		t.Fatal(err)
	}
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	left, err := RemoveFlat(dir)
	slices.Sort(left)
	if err != nil || !slices.Equal(left, []string{odd, sub}) || there(t, file) || !there(t, sub) || !there(t, odd) {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestRemoveTreeFollowsNothing(t *testing.T) {
	other, file := elsewhere(t)
	dir := filepath.Join(t.TempDir(), "tree")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a", "b", "c"))
	if err := os.Symlink(other, filepath.Join(dir, "a", "l")); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTree(dir); err != nil || there(t, dir) || !there(t, file) {
		t.Errorf("%v", err)
	}
}

// TestRemoveTreeOfAnyDepth: a sandbox can nest directories far deeper than a path is long
// or a process may open files, and can take the names that RemoveTree uses.
func TestRemoveTreeOfAnyDepth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	if err := os.MkdirAll(filepath.Join(dir, ".moved-2", "kept"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".moved-1"))
	for i := range 2500 { // more than a batch
		write(t, filepath.Join(dir, strconv.Itoa(i)))
	}
	if err := nest(dir, 3000); err != nil {
		t.Fatal(err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: files.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
			t.Error(err)
		}
	})
	if err := RemoveTree(dir); err != nil || there(t, dir) {
		t.Errorf("%v", err)
	}
}

// nest makes directories below dir, each in the one before.
func nest(dir string, depth int) error {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	for ; err == nil && depth > 0; depth-- {
		next := -1
		if err = unix.Mkdirat(at, "d", 0o700); err == nil {
			next, err = unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		}
		err = errors.Join(err, unix.Close(at))
		at = next
	}
	if err == nil {
		err = unix.Close(at)
	}
	return err
}

// TestNothingIsRemovedBehindAMount: os.RemoveAll empties what is mounted.
func TestNothingIsRemovedBehindAMount(t *testing.T) {
	need.Root(t, "mounts are root's")
	for name, remove := range map[string]func(string) error{
		"tree": RemoveTree,
		"flat": func(dir string) error {
			left, err := RemoveFlat(filepath.Join(dir, "point"))
			if len(left) != 1 {
				return err
			}
			return errors.Join(err, errors.New("left"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			other, file := elsewhere(t)
			dir := t.TempDir()
			point := filepath.Join(dir, "point")
			if err := os.Mkdir(point, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount(other, point, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := Unmount(point); err != nil {
					t.Error(err)
				}
			})
			if err := remove(dir); err == nil || !there(t, file) {
				t.Errorf("behind a mount: %v", err)
			}
			_ = os.RemoveAll(dir) // the mount point is busy
			if there(t, file) {
				t.Error("control: os.RemoveAll does not cross a mount either")
			}
		})
	}
}

func TestGiveTakesASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := Give(path, 0o640, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestMove(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "d", "b")
	if err := errors.Join(os.Mkdir(filepath.Dir(to), 0o700), os.WriteFile(from, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := Move(from, to); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(to); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	if err := os.WriteFile(from, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Move(from, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("onto another file: %v", err)
	}
}
