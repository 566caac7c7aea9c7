package localtree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

// tempDir is t.TempDir, which alone cannot remove what is in closed directories.
func tempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, _ error) error {
			if e != nil && e.IsDir() {
				return os.Chmod(p, 0o700)
			}
			return nil
		})
	})
	return dir
}

// render lists a tree with modes, contents and targets.
func render(t *testing.T, dir string) []string {
	t.Helper()
	list := []string{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		what := ""
		switch info.Mode().Type() {
		case 0:
			b, _ := os.ReadFile(p)
			what = string(b)
		case fs.ModeSymlink:
			target, _ := os.Readlink(p)
			what = "-> " + target
		}
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %v %s", rel, info.Mode(), what)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func sameTree(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := render(t, dir); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// sample is a tree with all that can be copied, and a FIFO.
func sample(t *testing.T) string {
	t.Helper()
	dir := tempDir(t)
	write(t, dir+"/src/b/file", "content", 0o640)
	write(t, dir+"/src/run", "#!", 0o755)
	write(t, dir+"/src/closed/in", "c", 0o400)
	if err := errors.Join(
		os.Symlink("b/file", dir+"/src/link"), os.Symlink("src", dir+"/alias"), syscall.Mkfifo(dir+"/src/fifo", 0o600), os.Chmod(dir+"/src/closed", 0o500),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

var copied = []string{"b drwxr-xr-x", "b/file -rw-r----- content", "closed dr-x------", "closed/in -r-------- c", "link Lrwxrwxrwx -> b/file", "run -rwxr-xr-x #!"}

// below puts a directory above a rendered tree.
func below(dir string, list []string) []string {
	out := []string{dir + " drwxr-xr-x"}
	for _, line := range list {
		out = append(out, dir+"/"+line)
	}
	return out
}

func pack(t *testing.T, local, name string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	if err := Pack(local, name, &b, func(p string) {
		if filepath.Base(p) != "fifo" {
			t.Errorf("%s is left out", p)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestRoundTrip(t *testing.T) {
	from := sample(t)
	for name, tc := range map[string]struct {
		local, base, to string
		want            []string
	}{
		"into a directory":     {"src", "src", "", below("src", copied)},
		"contents":             {"src", ".", "", copied},
		"as a new name":        {"src", "src", "new", below("new", copied)},
		"as a new name/":       {"src", "src", "new/", below("new", copied)},
		"contents as new name": {"src", ".", "new", below("new", copied)},
		"through a symlink":    {"alias", "alias", "", below("alias", copied)},
		"a file":               {"src/run", "run", "", []string{"run -rwxr-xr-x #!"}},
		"a file as a new name": {"src/run", "run", "new", []string{"new -rwxr-xr-x #!"}},
		"a symlink to a file":  {"src/link", "x", "", []string{"x -rw-r----- content"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			counts, err := Unpack(pack(t, filepath.Join(from, tc.local), tc.base), dir+"/"+tc.to)
			if err != nil || counts.Entries == 0 {
				t.Fatal(counts, err)
			}
			sameTree(t, dir, tc.want...)
		})
	}
}

func TestUnpackMerges(t *testing.T) {
	from, dir := sample(t), tempDir(t)
	write(t, dir+"/src/b/old", "old", 0o644)
	write(t, dir+"/src/run", "old", 0o644)
	if err := os.Symlink("/etc/hostname", dir+"/src/link"); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(pack(t, from+"/src", "src"), dir); err != nil {
		t.Fatal(err)
	}
	want := slices.Insert(below("src", copied), 3, "src/b/old -rw-r--r-- old")
	sameTree(t, dir, want...)
	when := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(from+"/src/run", when, when); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(pack(t, from+"/src/run", "run"), dir+"/src/run"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir + "/src/run"); err != nil || !info.ModTime().Equal(when) {
		t.Errorf("%v, %v", info, err)
	}
}

// entries makes a tar.
func entries(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Mode = 0o755
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// Whatever is wrong, the target is as it was, and what is beside it too.
func TestUnpackRefuses(t *testing.T) {
	top, file := tar.Header{Typeflag: tar.TypeDir, Name: "t/"}, tar.Header{Typeflag: tar.TypeReg, Name: "t/f"}
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	outside := tempDir(t)
	for name, tc := range map[string]struct {
		r    io.Reader
		to   string
		want string
	}{
		"nothing":              {entries(t), "", "empty"},
		"climbing":             {entries(t, top, tar.Header{Typeflag: tar.TypeReg, Name: "t/../../x"}), "", `"t/../../x"`},
		"absolute":             {entries(t, top, tar.Header{Typeflag: tar.TypeReg, Name: "/x"}), "", `"/x"`},
		"beside":               {entries(t, top, tar.Header{Typeflag: tar.TypeReg, Name: "x"}), "", "beside"},
		"twice":                {entries(t, top, file, file), "", "exists"},
		"a symlink first":      {entries(t, link("t", outside)), "", "begins with"},
		"through a symlink":    {entries(t, top, link("t/l", outside), tar.Header{Typeflag: tar.TypeReg, Name: "t/l/x"}), "", "escapes"},
		"a device":             {entries(t, top, tar.Header{Typeflag: tar.TypeChar, Name: "t/c"}), "", "neither"},
		"a hard link":          {entries(t, top, tar.Header{Typeflag: tar.TypeLink, Name: "t/c", Linkname: "/etc/passwd"}), "", "neither"},
		"cut off":              {io.LimitReader(entries(t, top, tar.Header{Typeflag: tar.TypeReg, Name: "t/x"}), 700), "", "unexpected EOF"},
		"broken after its end": {io.MultiReader(entries(t, top, file), iotest.ErrReader(errors.New("not whole"))), "", "not whole"},
		"no parent":            {entries(t, top), "no/such", "no such file"},
		"tree over file":       {entries(t, top), "file", "not a directory"},
		"file into no dir":     {entries(t, tar.Header{Typeflag: tar.TypeReg, Name: "f"}), "new/", "no directory"},
		"file over directory":  {entries(t, top, tar.Header{Typeflag: tar.TypeReg, Name: "t/d"}), "", "is a directory"},
		"tree over symlink":    {entries(t, top, tar.Header{Typeflag: tar.TypeDir, Name: "t/l/"}), "", "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			write(t, dir+"/file", "old", 0o644)
			write(t, dir+"/t/d/in", "old", 0o644)
			if err := os.Symlink(outside, dir+"/t/l"); err != nil {
				t.Fatal(err)
			}
			before := render(t, dir)
			if _, err := Unpack(tc.r, filepath.Join(dir, tc.to)+strings.Repeat("/", strings.Count(tc.to, "/")-strings.Count(strings.TrimRight(tc.to, "/"), "/"))); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			sameTree(t, dir, before...)
			sameTree(t, outside)
		})
	}
}

func TestPackRefuses(t *testing.T) {
	dir := sample(t)
	for local, want := range map[string]string{"gone": "no such file", "src/fifo": "neither a file nor a directory"} {
		if err := Pack(filepath.Join(dir, local), "x", io.Discard, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", local, err)
		}
	}
	full := errors.New("full")
	r, w := io.Pipe()
	r.CloseWithError(full)
	if err := Pack(dir+"/src", "x", w, func(string) {}); !errors.Is(err, full) {
		t.Errorf("a writer that fails: %v", err)
	}
}
