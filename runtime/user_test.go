package runtime

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

func layer(t *testing.T, passwd string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if passwd != "" {
		if err := os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte(passwd), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func passwdOf(t *testing.T, layers ...string) string {
	t.Helper()
	f, err := openInLayers(layers, "passwd")
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
	lower := layer(t, "lower")
	if got := passwdOf(t, t.TempDir(), layer(t, ""), lower); got != "lower" {
		t.Errorf("through layers without the file: %q", got)
	}
	if got := passwdOf(t, layer(t, "upper"), lower); got != "upper" {
		t.Errorf("the topmost: %q", got)
	}
	etcIsFile := t.TempDir()
	if err := os.WriteFile(filepath.Join(etcIsFile, "etc"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := passwdOf(t, etcIsFile, lower); got != "" {
		t.Errorf("below an etc that is no directory: %q", got)
	}
	link := layer(t, "")
	if err := os.Symlink("/etc/shadow", filepath.Join(link, "etc/passwd")); err != nil {
		t.Fatal(err)
	}
	if _, err := openInLayers([]string{link, lower}, "passwd"); !errors.Is(err, sbxerr.ImageUser) {
		t.Errorf("a symbolic link: %v", err)
	}
}

func TestWhiteoutsHideLowerLayers(t *testing.T) {
	need.Root(t, "whiteouts are devices and trusted attributes")
	lower := layer(t, "lower")
	whiteout := layer(t, "")
	if err := unix.Mknod(filepath.Join(whiteout, "etc/passwd"), unix.S_IFCHR, 0); err != nil {
		t.Fatal(err)
	}
	if got := passwdOf(t, whiteout, lower); got != "" {
		t.Errorf("below a whiteout: %q", got)
	}
	opaque := layer(t, "")
	if err := unix.Setxattr(filepath.Join(opaque, "etc"), "trusted.overlay.opaque", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	if got := passwdOf(t, opaque, lower); got != "" {
		t.Errorf("below an opaque directory: %q", got)
	}
}
