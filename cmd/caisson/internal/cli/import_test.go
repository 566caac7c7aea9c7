package cli_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/server/servertest"
)

// TestImportFolder packs a folder with one of everything.
func TestImportFolder(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	errs := []error{
		os.Mkdir(path("etc"), 0o750),
		os.WriteFile(path("etc/passwd"), []byte("root"), 0o600),
		syscall.Chmod(path("etc/passwd"), 0o4755),
		os.Link(path("etc/passwd"), path("etc/shadow")),
		os.Symlink("/etc/hostname", path("out")),
		syscall.Mkfifo(path("pipe"), 0o600),
	}
	l, err := net.Listen("unix", path("sock"))
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var listing []string
	f := &servertest.Fake{OnImport: func(_ string, r io.Reader, _ func(string)) (images.Imported, error) {
		archive := tar.NewReader(r)
		for {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				return images.Imported{Image: images.Image{Name: "x", Digest: "d"}}, nil
			}
			if err != nil {
				return images.Imported{}, sbxerr.Wrap(sbxerr.ImageFormat, "fake.import", err)
			}
			content, _ := io.ReadAll(archive)
			owned := h.Uid == os.Getuid() && h.Gid == os.Getgid() && h.Uname == ""
			listing = append(listing, fmt.Sprintf("%c %s %s %o %v %q", h.Typeflag, h.Name, h.Linkname, h.Mode, owned, content))
		}
	}}
	code, _, stderr := invoke(t, f, "", "image", "import", dir)
	if code != 0 || strings.Count(stderr, "left out") != 2 || !strings.Contains(stderr, "pipe") || !strings.Contains(stderr, "sock") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	want := []string{
		`5 ./  755 true ""`, `5 etc/  750 true ""`, `0 etc/passwd  4755 true "root"`, `1 etc/shadow etc/passwd 4755 true ""`,
		`2 out /etc/hostname 777 true ""`,
	}
	listing[0] = strings.Replace(listing[0], " 700 ", " 755 ", 1) // t.TempDir's mode is the umask's
	if !slices.Equal(listing, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(listing, "\n"), strings.Join(want, "\n"))
	}
}

func TestImportFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(file, []byte("bytes as they are"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []byte
	f := &servertest.Fake{OnImport: func(_ string, r io.Reader, _ func(string)) (_ images.Imported, err error) {
		got, err = io.ReadAll(r)
		return images.Imported{Image: images.Image{Name: "x"}}, err
	}}
	if code, _, stderr := invoke(t, f, "", "image", "import", file); code != 0 || string(got) != "bytes as they are" {
		t.Errorf("exit code %d, %q, stderr %q", code, got, stderr)
	}
}
