package images

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPackReadsNothingElse checks that a file which changes its nature while it
// is packed is refused and not followed.
func TestPackReadsNothingElse(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("inside"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	before, err := os.Lstat(file)
	if err != nil {
		t.Fatal(err)
	}
	p := packer{root: root, tar: tar.NewWriter(io.Discard)}
	swap := func(change func() error) error {
		t.Helper()
		if err := errors.Join(os.Remove(file), change()); err != nil {
			t.Fatal(err)
		}
		return p.content("f", before)
	}
	if err := swap(func() error { return os.Symlink("/etc/hostname", file) }); err == nil {
		t.Error("a link out of the folder was followed")
	}
	if err := swap(func() error { return syscall.Mkfifo(file, 0o600) }); err == nil {
		t.Error("a pipe was read")
	}
	if err := swap(func() error {
		return errors.Join(os.WriteFile(dir+"/other", []byte("other"), 0o600), os.Symlink("other", file))
	}); err == nil {
		t.Error("another file of the folder was taken for it")
	}
	if err := swap(func() error { return os.WriteFile(file, nil, 0o600) }); err == nil {
		t.Error("another file in its place was read")
	}
}

func TestPackShortFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	before, err := os.Lstat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 2); err != nil {
		t.Fatal(err)
	}
	p := packer{root: root, tar: tar.NewWriter(io.Discard)}
	if err := p.tar.WriteHeader(&tar.Header{Name: "f", Size: before.Size()}); err != nil {
		t.Fatal(err)
	}
	if err := p.content("f", before); err == nil || !strings.Contains(err.Error(), "became shorter") {
		t.Errorf("got %v", err)
	}
}
