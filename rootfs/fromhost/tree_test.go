package fromhost

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var fixedTime = time.Unix(1_700_000_000, 0)

func TestResolve(t *testing.T) {
	root := fakeRoot(t, map[string]node{
		"/usr/bin/dash": prog("x"), "/usr/bin/sh": link("dash"), "/bin": link("usr/bin"),
		"/usr/abs": link("/bin/sh"), "/usr/up": link("../../../../bin/../bin/sh"), "/a": link("b"), "/b": link("/a"),
		"/gone": link("nowhere"), "/usr/dot": link("."), "/usr/through": link("bin/dash/x"),
	})
	tests := []struct {
		path, want, links string
		err               error
	}{
		{path: "/usr/bin/dash", want: "/usr/bin/dash"},
		{path: "/bin/sh", want: "/usr/bin/dash", links: "/bin /usr/bin/sh"},
		{path: "/usr/abs", want: "/usr/bin/dash", links: "/usr/abs /bin /usr/bin/sh"},
		{path: "/usr/up", want: "/usr/bin/dash", links: "/usr/up /bin /usr/bin/sh"},
		{path: "/usr/dot/dot/bin/", want: "/usr/bin", links: "/usr/dot /usr/dot"},
		{path: "/usr/bin/../bin/./dash", want: "/usr/bin/dash"},
		{path: "/..", want: "/"},
		{path: "/", want: "/"},
		{path: "/a", err: errLoop},
		{path: "/gone", err: errAbsent},
		{path: "/usr/bin/dash/x", err: errAbsent},
		{path: "/usr/bin/dash/..", err: errAbsent},
		{path: "/usr/through", err: errAbsent},
		{path: "/" + strings.Repeat("d/", maxDepth+2), err: errAbsent},
	}
	for _, tc := range tests {
		t.Run(tc.path, func(t *testing.T) {
			tr := open(t, root)
			for range 2 { // the second time from memory
				r, err := tr.resolve(tc.path)
				if !errors.Is(err, tc.err) {
					t.Fatalf("error %v, want %v", err, tc.err)
				}
				if r.path != tc.want || strings.Join(r.links, " ") != tc.links {
					t.Errorf("got %q by %q, want %q by %q", r.path, r.links, tc.want, tc.links)
				}
			}
		})
	}
}

// Links of which each holds the next one twice would make a list of 2^n links.
func TestResolveBomb(t *testing.T) {
	nodes := map[string]node{"/l0": {}}
	for i := 1; i < 60; i++ {
		nodes[fmt.Sprintf("/l%d", i)] = link(fmt.Sprintf("l%d/../l%d", i-1, i-1))
	}
	tr := open(t, fakeRoot(t, nodes))
	if _, err := tr.resolve("/l59"); !errors.Is(err, errLoop) {
		t.Errorf("error %v, want %v", err, errLoop)
	}
	if r, err := tr.resolve("/l5"); err != nil || len(r.links) > maxLinks {
		t.Errorf("a short chain gives %d links and %v", len(r.links), err)
	}
}

func TestOnlyWhatEverybodyMayRead(t *testing.T) {
	closed := os.ModeDir | 0o700
	root := fakeRoot(t, map[string]node{
		"/open/file": file("x"), "/open/secret": {text: "s", mode: 0o600},
		"/open/notgroup": {text: "s", mode: 0o604}, "/open/notworld": {text: "s", mode: 0o640},
		"/closed/file": file("s"), "/closed/deep/file": file("s"), "/closed": {mode: closed},
		"/blind/file": file("x"), "/blind": {mode: os.ModeDir | 0o711},
		"/in": link("closed/file"),
	})
	tests := []struct {
		path string
		err  error
	}{
		{"/open/file", nil},
		{"/open/secret", errHidden},
		{"/open/notgroup", errHidden},
		{"/open/notworld", errHidden},
		{"/closed/file", errHidden},
		{"/closed/deep/file", errHidden},
		{"/blind/file", nil},
		{"/in", errSpecial}, // open takes no links
	}
	tr := open(t, root)
	for _, tc := range tests {
		f, _, err := tr.open(tc.path)
		if !errors.Is(err, tc.err) {
			t.Errorf("open %s: %v, want %v", tc.path, err, tc.err)
		}
		if f != nil {
			must(t, f.Close())
		}
	}
	if _, err := tr.readFile("/in", 100); !errors.Is(err, errHidden) {
		t.Errorf("read through a link: %v, want %v", err, errHidden)
	}
	for dir, want := range map[string]error{"/open": nil, "/blind": errHidden, "/closed": errHidden} {
		if _, err := tr.list(dir, 10); !errors.Is(err, want) {
			t.Errorf("list %s: %v, want %v", dir, err, want)
		}
	}
}

func TestOpenNeverBlocksOrFollows(t *testing.T) {
	root := fakeRoot(t, map[string]node{"/d/file": file("x"), "/l": link("d"), "/d/l": link("file")})
	fifo(t, filepath.Join(root, "/d/pipe"))
	tr := open(t, root)
	for _, p := range []string{"/d/pipe", "/d/l", "/d", "/l/file"} {
		if f, _, err := tr.open(p); err == nil {
			t.Errorf("open %s: %v, want an error", p, f.Name())
		}
	}
}

// A directory that was checked and is then replaced by a link must not lead
// elsewhere, neither while it is open nor when it is opened again.
func TestReplacedDirectory(t *testing.T) {
	root := fakeRoot(t, map[string]node{"/soft/bin/tool": file("good"), "/secret/bin/tool": file("bad"), "/x/y": file("z")})
	tr := open(t, root)
	if _, err := tr.resolve("/soft/bin/tool"); err != nil {
		t.Fatal(err)
	}
	must(t, os.Rename(filepath.Join(root, "soft"), filepath.Join(root, "old")))
	must(t, os.Symlink("secret", filepath.Join(root, "soft")))
	f, _, err := tr.open("/soft/bin/tool") // still held open
	must(t, err)
	data, err := io.ReadAll(f)
	must(t, errors.Join(err, f.Close()))
	if string(data) != "good" {
		t.Errorf("read %q", data)
	}
	if _, err := tr.lstat("/x/y"); err != nil { // leaves /soft
		t.Fatal(err)
	}
	if f, _, err := tr.open("/soft/bin/tool"); err == nil {
		t.Errorf("opened %s through the link", f.Name())
	}
}

func TestPseudoFileSystem(t *testing.T) {
	tr := open(t, "/")
	for _, p := range []string{"/proc/version", "/proc/self/status"} {
		if _, _, err := tr.open(p); !errors.Is(err, errPseudo) && !errors.Is(err, errSpecial) {
			t.Errorf("open %s: %v, want %v", p, err, errPseudo)
		}
	}
}

func TestDescriptorsAreClosed(t *testing.T) {
	root := fakeRoot(t, map[string]node{
		"/a/b/c/file": file("x"), "/a/b/hidden": {text: "s", mode: 0o600}, "/shut/x": file("s"), "/shut": {mode: os.ModeDir | 0o700},
	})
	before := openFDs(t)
	tr, err := openTree(root)
	must(t, err)
	for _, p := range []string{"/a/b/c/file", "/a/b/hidden", "/shut/x", "/a/none", "/a/b"} {
		if f, _, err := tr.open(p); err == nil {
			must(t, f.Close())
		}
		_, _ = tr.list(p, 1)
		_, _ = tr.lstat(p)
		_, _ = tr.readlink(p)
	}
	must(t, tr.Close())
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestBounds(t *testing.T) {
	deep := "/" + strings.Repeat("d/", maxDepth) + "f"
	root := fakeRoot(t, map[string]node{deep: file("x"), "/many/a": file(""), "/many/b": file(""), "/big": file("12345")})
	tr := open(t, root)
	if _, err := tr.lstat(deep); err != nil {
		t.Errorf("at the limit of depth: %v", err)
	}
	if _, err := tr.lstat("/d" + deep); !errors.Is(err, errDeep) {
		t.Errorf("beyond the limit of depth: %v", err)
	}
	if names, err := tr.list("/many", 2); err != nil || len(names) != 2 {
		t.Errorf("at the limit of names: %q, %v", names, err)
	}
	if _, err := tr.list("/many", 1); !errors.Is(err, errTooBig) {
		t.Errorf("beyond the limit of names: %v", err)
	}
	if _, err := tr.readFile("/big", 4); !errors.Is(err, errTooBig) {
		t.Errorf("beyond the limit of bytes: %v", err)
	}
}
