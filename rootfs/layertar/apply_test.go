package layertar

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// grow makes a random tree below dir, whose ids begin at base. It returns its files and directories.
func grow(t *testing.T, r *rand.Rand, dir string, base int, overlay bool) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Lchown(dir, base, base))
	dirs, files, pipes := []string{dir}, []string{}, []string{}
	bits := 0o1000 // of a mode; no layer of an image has set-id bits
	if !overlay {
		bits = 0o10000
	}
	for i := range 1 + r.IntN(30) {
		at := filepath.Join(dirs[r.IntN(len(dirs))], fmt.Sprintf("%d é\n%s", i, strings.Repeat("n", r.IntN(120))))
		kind := r.IntN(8)
		switch {
		case kind == 0:
			check(os.Mkdir(at, 0o755))
			dirs = append(dirs, at)
			if overlay && r.IntN(2) == 0 {
				check(unix.Lsetxattr(at, "trusted.overlay.opaque", []byte("y"), 0))
			}
		case kind == 1:
			check(os.Symlink(fmt.Sprintf("../%d", i), at))
		case kind == 2 && len(files) > 0:
			check(os.Link(files[r.IntN(len(files))], at))
			continue
		case kind == 3 && overlay:
			check(unix.Mknod(at, unix.S_IFCHR, 0))
			continue
		case kind == 7 && !overlay:
			check(unix.Mkfifo(at, 0o600))
			pipes = append(pipes, at)
		default:
			data := make([]byte, r.IntN(200<<10))
			if r.IntN(2) == 0 {
				copy(data[len(data)/2:], "some")
			}
			check(os.WriteFile(at, data, 0o600))
			files = append(files, at)
		}
		check(os.Lchown(at, base+r.IntN(3), base+r.IntN(65536)))
		if kind != 1 {
			check(unix.Chmod(at, uint32(r.IntN(bits))))
		}
	}
	for _, at := range slices.Concat(dirs, files, pipes) {
		check(os.Chtimes(at, time.Unix(int64(r.IntN(2e9)), 0), time.Unix(int64(r.IntN(2e9)), 123)))
	}
}

// described has a line for each file below dir, with all that a layer keeps of it.
func described(t *testing.T, dir string, base int) string {
	t.Helper()
	var lines []string
	names := map[uint64]string{}
	err := filepath.WalkDir(dir, func(at string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		name := strings.TrimPrefix(at, dir)
		line := fmt.Sprintf("%q %v", name, info.Mode())
		switch {
		case info.Mode()&fs.ModeCharDevice != 0:
			line = fmt.Sprintf("%q removed %d", name, st.Rdev)
		case info.IsDir():
			value := make([]byte, 1)
			n, _ := unix.Lgetxattr(at, "trusted.overlay.opaque", value) // absent is 0
			line += fmt.Sprintf(" %d:%d %v %q", int(st.Uid)-base, int(st.Gid)-base, info.ModTime(), value[:max(n, 0)])
		case info.Mode()&fs.ModeNamedPipe != 0:
			line += fmt.Sprintf(" %d:%d %v", int(st.Uid)-base, int(st.Gid)-base, info.ModTime())
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(at)
			line += fmt.Sprintf(" %d:%d -> %q", int(st.Uid)-base, int(st.Gid)-base, to)
		default:
			data, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d:%d %v %x", int(st.Uid)-base, int(st.Gid)-base, info.ModTime(), data[:min(len(data), 4)])
			line += fmt.Sprintf(" %d %d same as %q", len(data), bytes.Count(data, []byte("some")), names[st.Ino])
			names[st.Ino] = name
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// openParts opens the trees upper and workspace below dir.
func openParts(t *testing.T, dir string) []Part {
	t.Helper()
	var parts []Part
	for at, name := range map[string]string{"": "upper", "workspace": "own"} {
		root, err := os.OpenRoot(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { root.Close() })
		parts = append(parts, Part{root, at, at != ""})
	}
	return parts
}

func emptyParts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"upper", "own"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Whatever two trees hold, they are the same after they were a layer, with the ids of another block.
func TestPartsAndApply(t *testing.T) {
	need.Root(t, "it gives files to other owners, and makes whiteouts")
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		from, to := emptyParts(t), emptyParts(t)
		grow(t, r, filepath.Join(from, "upper"), 1<<20, true)
		grow(t, r, filepath.Join(from, "own"), 1<<20, false)
		hidden := filepath.Join(from, "upper", "workspace") // the point of the mount
		if err := os.MkdirAll(filepath.Join(hidden, "not seen"), 0o755); err != nil {
			t.Fatal(err)
		}
		var layer bytes.Buffer
		if err := Parts(openParts(t, from), 1<<20, &layer); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := os.RemoveAll(hidden); err != nil {
			t.Fatal(err)
		}
		if err := Apply(&layer, 1<<16, openParts(t, to)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, name := range []string{"upper", "own"} {
			was, is := described(t, filepath.Join(from, name), 1<<20), described(t, filepath.Join(to, name), 1<<16)
			if name == "upper" { // the root of a layer has the attributes that its unpacker gives it
				_, was, _ = strings.Cut(was, "\n")
				_, is, _ = strings.Cut(is, "\n")
			}
			if was != is {
				t.Fatalf("seed %d, %s:\n%s\nbecame:\n%s", seed, name, was, is)
			}
		}
	}
}

// A name that is a mark in a layer is not written, for a reader would remove something.
func TestPartsRefuseMarks(t *testing.T) {
	dir := emptyParts(t)
	if err := os.WriteFile(filepath.Join(dir, "own", ".wh.etc"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Parts(openParts(t, dir), 0, new(bytes.Buffer)); sbxerr.Of(err) != sbxerr.SnapshotName {
		t.Errorf("%v", err)
	}
}

// A directory of the image that was renamed has its files below: a layer without them would lose them.
func TestPartsRefuseRenamed(t *testing.T) {
	need.Root(t, "it sets trusted attributes")
	dir := emptyParts(t)
	at := filepath.Join(dir, "upper", "moved")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Parts(openParts(t, dir), 0, new(bytes.Buffer)); err != nil {
		t.Fatalf("a new directory: %v", err)
	}
	if err := unix.Setxattr(at, "trusted.overlay.redirect", []byte("/etc"), 0); err != nil {
		t.Fatal(err)
	}
	if err := Parts(openParts(t, dir), 0, new(bytes.Buffer)); sbxerr.Of(err) != sbxerr.SnapshotName || !strings.Contains(err.Error(), `"/moved"`) {
		t.Errorf("%v", err)
	}
}

// Nothing leaves the trees, also where the filter let pass what it must not.
func TestApplyStaysInside(t *testing.T) {
	need.Root(t, "it gives files to other owners, and makes whiteouts")
	for name, list := range map[string][]tar.Header{
		"a name above":           {{Typeflag: tar.TypeReg, Name: "../out"}},
		"an absolute name":       {{Typeflag: tar.TypeReg, Name: "/out"}},
		"through a link":         {{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../.."}, {Typeflag: tar.TypeReg, Name: "l/out"}},
		"a link to the other":    {{Typeflag: tar.TypeReg, Name: "workspace/w"}, {Typeflag: tar.TypeLink, Name: "x", Linkname: "workspace/w"}},
		"a link above":           {{Typeflag: tar.TypeLink, Name: "x", Linkname: "../own"}},
		"a device":               {{Typeflag: tar.TypeBlock, Name: "x", Devmajor: 8}},
		"a removal in workspace": {{Typeflag: tar.TypeReg, Name: "workspace/.wh.x"}},
	} {
		dir := emptyParts(t)
		var layer bytes.Buffer
		w := tar.NewWriter(&layer)
		for _, h := range list {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := Apply(&layer, 0, openParts(t, dir)); err == nil {
			t.Errorf("%s: taken", name)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}
