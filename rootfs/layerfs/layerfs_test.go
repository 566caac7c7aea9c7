package layerfs_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/rootfs/layerfs"
	"github.com/caisson-run/caisson/tests/need"
)

// layer makes one with a directory etc, and the file passwd there unless it is empty.
func layer(t *testing.T, passwd string) string {
	t.Helper()
	dir := t.TempDir()
	mkdir(t, dir, "etc")
	if passwd != "" {
		write(t, dir, "etc/passwd", passwd)
	}
	return dir
}

func mkdir(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, dir, name string) {
	t.Helper()
	if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func passwdOf(t *testing.T, layers ...string) string {
	t.Helper()
	f, err := layerfs.Layers(layers).Open("etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestUpperLayersHideLowerOnes(t *testing.T) {
	low := layer(t, "lower")
	if got := passwdOf(t, t.TempDir(), layer(t, ""), low); got != "lower" {
		t.Errorf("through layers without the file: %q", got)
	}
	if got := passwdOf(t, layer(t, "upper"), low); got != "upper" {
		t.Errorf("the topmost: %q", got)
	}
	file := t.TempDir()
	write(t, file, "etc", "")
	if got := passwdOf(t, file, low); got != "" {
		t.Errorf("below an etc that is no directory: %q", got)
	}
	linked := layer(t, "")
	link(t, "/etc/shadow", linked, "etc/passwd")
	if _, err := (layerfs.Layers{linked, low}).Open("etc/passwd"); err == nil {
		t.Error("a symbolic link was opened")
	}
}

func TestWhiteoutsHideLowerLayers(t *testing.T) {
	need.Root(t, "whiteouts are devices and trusted attributes")
	low := layer(t, "lower")
	whiteout, opaque := layer(t, ""), layer(t, "")
	if err := unix.Mknod(filepath.Join(whiteout, "etc/passwd"), unix.S_IFCHR, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(filepath.Join(opaque, "etc"), "trusted.overlay.opaque", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	for name, top := range map[string]string{"a whiteout": whiteout, "an opaque directory": opaque} {
		if got := passwdOf(t, top, low); got != "" {
			t.Errorf("below %s: %q", name, got)
		}
		if _, err := (layerfs.Layers{top, low}).Lstat("etc/passwd"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("below %s: %v", name, err)
		}
	}
	if has, err := (layerfs.Layers{opaque, low}).HasEntries("etc"); has || err != nil {
		t.Errorf("below an opaque directory there are entries: %v, err %v", has, err)
	}
	if has, err := (layerfs.Layers{layer(t, ""), low}).HasEntries("etc"); !has || err != nil {
		t.Errorf("without them: %v, err %v", has, err)
	}
}

func TestLstat(t *testing.T) {
	low, top := t.TempDir(), t.TempDir()
	mkdir(t, low, "var/lib/db")
	mkdir(t, low, "srv/app")
	link(t, "srv", low, "link")
	mkdir(t, top, "var")
	write(t, top, "srv", "")
	l := layerfs.Layers{top, low}
	if st, err := l.Lstat("var/lib/db"); err != nil || !st.IsDir() {
		t.Errorf("a directory of the lower layer: %v, %v", st, err)
	}
	for name, what := range map[string]string{"srv/app": "below a file", "link/app": "through a link", "var/none": "that is not there"} {
		if _, err := l.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a directory %s: %v", what, err)
		}
	}
	if has, err := l.HasEntries("none"); has || err != nil {
		t.Errorf("no directory: %v, %v", has, err)
	}
}
