package files

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	wire "github.com/caisson-run/caisson/initproto/files"
)

func TestCheckPath(t *testing.T) {
	for path, want := range map[string]string{
		"":                               "the path is empty",
		"relative":                       `path "relative" is not absolute`,
		"./x":                            "is not absolute",
		"/a\x00b":                        `path "/a\x00b" holds a NUL`,
		"/" + strings.Repeat("x", 256):   "an element of 256 bytes",
		strings.Repeat("/x", 2048) + "/": "4097 bytes",
	} {
		refused(t, path, checkPath(path), sbxerr.FilePath, want)
	}
	for _, path := range []string{"/", "/a/../b", "/a//b/", strings.Repeat("/x", 2047)} {
		if err := checkPath(path); err != nil {
			t.Errorf("%.20q: %v", path, err)
		}
	}
	for _, path := range []string{"/", "//", "/.", "/..", "/a/..", "/a/../", "/a/.", "x"} {
		if _, err := checkTarget(path); sbxerr.Of(err) != sbxerr.FilePath {
			t.Errorf("%q can be removed: %v", path, err)
		}
	}
	if got, err := checkTarget("/a/b//"); got != "/a/b" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestStaysIn(t *testing.T) {
	for _, tc := range []struct {
		target string
		depth  int
		want   bool
	}{
		{"x", 0, true}, {"x/y/", 0, true}, {".", 0, true}, {"./x", 0, true}, {"..x/y..", 0, true},
		{"..", 0, false}, {"../x", 0, false}, {"./../x", 0, false}, {"../x", 1, true}, {".././../x", 2, true}, {"../../x", 1, false},
		{"x/..", 3, false}, {"../x/../y", 3, false}, {"x/../../y", 3, false},
		{"/x", 3, false}, {"/", 0, false}, {"", 0, false}, {"a\nb", 0, false}, {"a\xffb", 0, false}, {"\x1b[2J", 0, false},
	} {
		if got := staysIn(tc.target, tc.depth); got != tc.want {
			t.Errorf("staysIn(%q, %d) = %v", tc.target, tc.depth, got)
		}
	}
}

// Whatever symlinks a tree keeps, the kernel must not be led out of it by any
// of them. The oracle makes them and asks it.
func FuzzSymlinksStayIn(f *testing.F) {
	f.Add("d/e/s", "../..", "t", "d/e/s/../..")
	f.Add("s", "..", "t", "s/..")
	f.Add("d/s", "..", "d/t", "s/s/t")
	f.Fuzz(func(t *testing.T, name1, target1, name2, target2 string) {
		parent := t.TempDir()
		top := filepath.Join(parent, "top")
		if err := os.MkdirAll(filepath.Join(top, "d/e"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(parent, "outside"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		made := []string{}
		for name, target := range map[string]string{name1: target1, name2: target2} {
			dir := filepath.Dir(name)
			if dir != "." && dir != "d" && dir != "d/e" || filepath.Clean(name) != name || !staysIn(target, strings.Count(name, "/")) {
				continue
			}
			if os.Symlink(target, filepath.Join(top, name)) == nil {
				made = append(made, name)
			}
		}
		for _, name := range made {
			real, err := filepath.EvalSymlinks(filepath.Join(top, name))
			if err == nil && real != top && !strings.HasPrefix(real, top+"/") {
				t.Errorf("%q -> %q, %q -> %q: %q leads to %q", name1, target1, name2, target2, name, real)
			}
		}
	})
}

func TestTreeRefusesWhatNoWalkSends(t *testing.T) {
	dir := func(p string) wire.Info { return wire.Info{Type: wire.TypeDir, Path: p} }
	file := func(p string) wire.Info { return wire.Info{Type: wire.TypeFile, Path: p} }
	link := func(p string) wire.Info { return wire.Info{Type: wire.TypeSymlink, Path: p, Link: "x"} }
	for name, walk := range map[string][]wire.Info{
		"no top":                  {file("a")},
		"a symlink on top":        {{Type: wire.TypeSymlink, Link: "x"}},
		"the top twice":           {dir(""), dir("")},
		"a name twice":            {dir(""), file("a"), file("a")},
		"a file over a symlink":   {dir(""), link("a"), file("a")},
		"names not in order":      {dir(""), file("b"), file("a")},
		"below a symlink":         {dir(""), link("a"), file("a/b")},
		"below a file":            {dir(""), file("a"), file("a/b")},
		"below nothing":           {dir(""), file("a/b")},
		"back to a directory":     {dir(""), dir("a"), dir("b"), file("a/x")},
		"a directory again":       {dir(""), dir("a"), file("a/x"), dir("a")},
		"below a file that top":   {file(""), file("a")},
		"dot dot":                 {dir(""), dir("..")},
		"dot":                     {dir(""), file(".")},
		"dot dot inside":          {dir(""), dir("a"), file("a/..")},
		"absolute":                {dir(""), file("/a")},
		"an empty element":        {dir(""), dir("a"), file("a//b")},
		"a slash at the end":      {dir(""), dir("a/")},
		"an element that is long": {dir(""), file(strings.Repeat("x", 256))},
	} {
		var tree tree
		var err error
		for i, entry := range walk {
			if _, err = tree.place(entry); err != nil && i != len(walk)-1 {
				t.Errorf("%s: refused early: %v", name, err)
			}
		}
		if sbxerr.Of(err) != sbxerr.Init {
			t.Errorf("%s is taken: %v", name, err)
		}
	}
}

func TestBase(t *testing.T) {
	for path, want := range map[string]string{"/": ".", "/a": "a", "/a/b//": "b", "/a/.": ".", "/a/..": ".", "//": ".", "/a/./": "."} {
		if got := baseOf(path); got != want {
			t.Errorf("baseOf(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestHeaderHoldsNothingOfTheSandbox(t *testing.T) {
	h := headerOf(wire.Info{Type: wire.TypeFile, Path: "a", Mode: 0o7755, UID: 5, GID: 6, Size: 7, Mtime: 1 << 40, Nanos: 5}, "base")
	if h.Name != "base/a" || h.Mode != 0o755 || h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != maxTime || h.ModTime.Nanosecond() != 0 {
		t.Errorf("%+v", h)
	}
	if h := headerOf(wire.Info{Type: wire.TypeFile, Mtime: -1 << 62}, "base"); h.ModTime.Unix() != 0 || h.Name != "base" {
		t.Errorf("%+v", h)
	}
	if h := headerOf(wire.Info{Type: wire.TypeDir}, "."); h.Name != "./" || h.Typeflag != tar.TypeDir {
		t.Errorf("%+v", h)
	}
}

func FuzzCleanName(f *testing.F) {
	for _, s := range []string{"a/b", "../x", "/x", "./a//b/.", "a\x00", strings.Repeat("x/", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		clean, err := cleanName(name)
		if err != nil {
			if sbxerr.Of(err) != sbxerr.Archive {
				t.Fatal(err)
			}
			return
		}
		if clean != "" && (checkBelow(clean) != nil || !filepath.IsLocal(clean) || filepath.Clean(clean) != clean) {
			t.Errorf("%q becomes %q", name, clean)
		}
	})
}

// An archive of any bytes never makes an entry that is not plain.
func FuzzEntryFrom(f *testing.F) {
	f.Add(archive(f, tar.Header{Name: "a"}, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "a"}).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		for r := tar.NewReader(strings.NewReader(string(b))); ; {
			h, err := r.Next()
			if err != nil {
				return
			}
			i, err := entryFrom(h)
			if i == nil || err != nil {
				continue
			}
			frame := i.Frame()
			got, err := wire.DecodeInfo(frame[wire.HeaderSize:])
			if err != nil || got != *i || checkBelow(i.Path) != nil || i.Mode&^0o777 != 0 {
				t.Errorf("%+v becomes %+v, %v", h, i, err)
			}
			if _, err := io.Copy(io.Discard, r); err != nil && !errors.Is(err, io.EOF) {
				return
			}
		}
	})
}
