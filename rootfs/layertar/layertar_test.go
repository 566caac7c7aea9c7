package layertar

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// tree makes a directory: names that end in a slash are directories, "a -> b" is a link.
func tree(t *testing.T, names ...string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path, link, isLink := strings.Cut(name, " -> ")
		path = filepath.Join(dir, path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(link, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// listed is a line for each entry of a layer.
func listed(t *testing.T, r io.Reader) string {
	t.Helper()
	var lines []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(lines, "\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s %o %d:%d", h.Name, h.Mode, h.Uid, h.Gid)
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		lines = append(lines, line)
	}
}

var unixTime = time.Unix(1, 0)

func octal(mode fs.FileMode) func(fs.FileMode) fs.FileMode {
	return func(fs.FileMode) fs.FileMode { return mode }
}

func write(c Copy, w io.Writer) error {
	layer, err := c.Plan(context.Background())
	if err != nil {
		return err
	}
	return layer.Write(w)
}

func TestCopy(t *testing.T) {
	from := tree(t, "a", "b.txt", "c.txt", "d/x", "d/e/y", "d/link -> /etc/passwd")
	into := tree(t, "usr/bin/sh", "bin -> usr/bin", "abs -> /usr", "loop -> loop", "file")
	for name, tt := range map[string]struct {
		sources []string
		dest    string
		want    string // of the layer, or of the refusal
	}{
		"a file to a name":        {[]string{"a"}, "/new", "new 600 5:6"},
		"a file to a folder":      {[]string{"a"}, "/new/", "new/ 600 5:6\nnew/a 600 5:6"},
		"to a folder that is":     {[]string{"/a"}, "/usr/bin", "usr/bin/a 600 5:6"},
		"through a link":          {[]string{"a"}, "/bin/a", "usr/bin/a 600 5:6"},
		"through two links":       {[]string{"a"}, "/abs/bin/", "usr/bin/a 600 5:6"},
		"above the tree":          {[]string{"../../a"}, "/../x", "x 600 5:6"},
		"a folder":                {[]string{"d"}, "/new", "new/ 600 5:6\nnew/e/ 600 5:6\nnew/e/y 600 5:6\nnew/link 777 5:6 -> /etc/passwd\nnew/x 600 5:6"},
		"into a folder that is":   {[]string{"d/e"}, "/usr", "usr/y 600 5:6"},
		"all into the root":       {[]string{"."}, "/", "a 600 5:6\nb.txt 600 5:6\nc.txt 600 5:6\nd/ 600 5:6\nd/e/ 600 5:6\nd/e/y 600 5:6\nd/link 777 5:6 -> /etc/passwd\nd/x 600 5:6"},
		"a pattern":               {[]string{"*.txt"}, "/x/", "x/ 600 5:6\nx/b.txt 600 5:6\nx/c.txt 600 5:6"},
		"many to one name":        {[]string{"*.txt"}, "/x", "2 sources need a directory"},
		"nothing":                 {[]string{"absent"}, "/x", `there is no "absent"`},
		"a pattern of nothing":    {[]string{"*.go"}, "/x", ""},
		"a bad pattern":           {[]string{"[", "a"}, "/x/", "pattern"},
		"links without an end":    {[]string{"a"}, "/loop/x", "more than 40 links"},
		"below a file":            {[]string{"a"}, "/file/x", "is no directory"},
		"a source through a link": {[]string{"d/link/x"}, "/x", "no \"d/link/x\""},
	} {
		c := Copy{From: from, Sources: tt.sources, Into: into, Dest: tt.dest, Owner: &Owner{5, 6}, Mode: octal(0o600), DirMode: 0o600}
		var out bytes.Buffer
		if err := write(c, &out); err != nil {
			if !errors.Is(err, sbxerr.Config) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", name, err, tt.want)
			}
			continue
		}
		if got := listed(t, &out); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tt.want)
		}
	}
}

// TestDigest: it changes with all but times.
func TestDigest(t *testing.T) {
	from, into := tree(t, "a", "b"), tree(t, "x/")
	digest := func(c Copy) string {
		c.From, c.Into = from, into
		layer, err := c.Plan(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		d, err := layer.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	plain := Copy{Sources: []string{"a"}, Dest: "/x/"}
	first := digest(plain)
	if err := os.Chtimes(filepath.Join(from.Name(), "a"), unixTime, unixTime); err != nil {
		t.Fatal(err)
	}
	if digest(plain) != first {
		t.Error("another time is another digest")
	}
	if digest(Copy{Sources: []string{"a"}, Dest: "/x/", Owner: &Owner{UID: 1}}) == first || digest(Copy{Sources: []string{"a"}, Dest: "/x/", Mode: octal(0o600)}) == first {
		t.Error("another owner or mode is the same digest")
	}
	if err := os.WriteFile(filepath.Join(from.Name(), "a"), []byte("b"), 0o644); err != nil {
		t.Fatal(err)
	}
	if digest(plain) == first {
		t.Error("another content is the same digest")
	}
}

// TestChanges: whiteouts, opaque directories, hard links and ids of an overlay's layer.
func TestChanges(t *testing.T) {
	need.Root(t, "it makes whiteouts")
	upper := tree(t, "etc/hosts", "etc/new", "opaque/x", "links/a", "fifo/")
	at := func(name string) string { return filepath.Join(upper.Name(), name) }
	for name, err := range map[string]error{
		"whiteout": unix.Mknod(at("gone"), unix.S_IFCHR, 0),
		"opaque":   unix.Setxattr(at("opaque"), "trusted.overlay.opaque", []byte("y"), 0),
		"link":     os.Link(at("links/a"), at("links/b")),
		"fifo":     unix.Mkfifo(at("fifo/f"), 0o644),
		"device":   unix.Mknod(at("fifo/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
	} {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, name := range []string{".", "etc", "etc/hosts", "etc/new", "opaque", "opaque/x", "links", "links/a", "fifo"} {
		if err := os.Lchown(at(name), 100_000, 100_033); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := Changes(upper, 100_000, []string{"etc/hosts"}, &out); err != nil {
		t.Fatal(err)
	}
	want := `etc/ 755 0:33
etc/new 644 0:33
fifo/ 755 0:33
.wh.gone 0 0:0
links/ 755 0:33
links/a 644 0:33
links/b 644 0:33 -> links/a
opaque/ 755 0:33
opaque/.wh..wh..opq 0 0:0
opaque/x 644 0:33`
	if got := listed(t, &out); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDirectory(t *testing.T) {
	into := tree(t, "usr/bin/", "bin -> usr/bin", "file")
	for name, want := range map[string]string{"/bin": "", "/bin/x/y": "usr/bin/x/ 755 1:2\nusr/bin/x/y/ 755 1:2", "/": ""} {
		var out bytes.Buffer
		layer, err := Directory(into, name, Owner{1, 2})
		if err == nil {
			err = layer.Write(&out)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := listed(t, &out); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
