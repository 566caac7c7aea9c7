package integration

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// Symlinks of /proc that the sandbox's user may not read are refused as such, and in
// a listing are without their target.
func TestUnreadableLinks(t *testing.T) {
	box(t, daemon, "links")
	c := dial(t)
	for _, path := range []string{"/proc/1/exe", "/proc/1/cwd", "/proc/1/root"} {
		if _, err := c.Stat(t.Context(), &caissonv1.StatRequest{Ref: "links", Path: path}); !errors.Is(err, sbxerr.FileRights) || !strings.Contains(err.Error(), path) {
			t.Errorf("stat of %s: %v", path, err)
		}
		if _, err := c.CopyOut(t.Context(), &caissonv1.CopyOutRequest{Ref: "links", Path: path}, io.Discard); !errors.Is(err, sbxerr.FileRights) {
			t.Errorf("copy of %s: %v", path, err)
		}
	}
	res, err := c.ListDir(t.Context(), &caissonv1.ListDirRequest{Ref: "links", Path: "/", Depth: 3})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range res.Files {
		got[f.Path] = f.Type + " to " + f.Link
	}
	for path, want := range map[string]string{"proc/1/exe": "symlink to ", "proc/mounts": "symlink to self/mounts"} {
		if got[path] != want {
			t.Errorf("%s is listed as a %q, want a %q", path, got[path], want)
		}
	}
}

// In a directory whose entries come, go and take each other's names, each listing
// and each copy is whole: what stays is in it.
func TestBusyDirectory(t *testing.T) {
	box(t, daemon, "busy")
	c := dial(t)
	const busy = `cd /tmp/busy; mkdir links; many=$(seq 500); while :; do
		ln -s $many links; rm links/*
		ln -s stays link; echo content > file; mkdir kind; echo content > kind/in
		rm link file; rm -r kind; ln -s stays kind; rm kind; echo content > kind; rm kind; mkfifo kind; rm kind; done`
	daemon.Run(t, "exec", "busy", "--", "sh", "-c", "mkdir /tmp/busy; echo content > /tmp/busy/stays")
	start(t, daemon, "busy", "sh", "-c", busy)
	for range 100 {
		res, err := c.ListDir(t.Context(), &caissonv1.ListDirRequest{Ref: "busy", Path: "/tmp/busy", Depth: 2})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(res.Files, func(f *caissonv1.FileInfo) bool { return f.Path == "stays" }) {
			t.Errorf("what stays is not among %v", res.Files)
		}
	}
	for range 30 {
		var out bytes.Buffer
		if _, err := c.CopyOut(t.Context(), &caissonv1.CopyOutRequest{Ref: "busy", Path: "/tmp/busy"}, &out); err != nil {
			t.Fatal(err)
		}
		if names := namesIn(t, &out); !slices.Contains(names, "busy/stays") {
			t.Errorf("what stays is not among %q", names)
		}
	}
}

// namesIn reads an archive to its end.
func namesIn(t *testing.T, archive io.Reader) (names []string) {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

// A watch follows a directory that is moved, and forgets one that leaves or is removed.
func TestWatchMovedDirectory(t *testing.T) {
	box(t, daemon, "moves")
	c := dial(t)
	change := func(script string) { daemon.Run(t, "exec", "moves", "--", "sh", "-c", "cd /tmp/w; "+script) }
	daemon.Run(t, "exec", "moves", "--", "mkdir", "-p", "/tmp/w/a/b")
	w := watchFiles(t, c, &caissonv1.WatchFilesRequest{Ref: "moves", Path: "/tmp/w", Recursive: true})
	for _, step := range []struct {
		script, last string
		told, not    []string
	}{
		{"mv a c", "create /tmp/w/c/b", []string{"rename /tmp/w/a", "create /tmp/w/c"}, nil},
		{"touch c/b/f", "create /tmp/w/c/b/f", nil, []string{"create /tmp/w/a/b/f"}},
		{"mv c /tmp/away; touch /tmp/away/b/g end", "create /tmp/w/end", []string{"rename /tmp/w/c"}, []string{"create /tmp/w/c/b/g", "create /tmp/w/a/b/g"}},
		{"mv /tmp/away a", "create /tmp/w/a/b/g", []string{"create /tmp/w/a", "create /tmp/w/a/b"}, nil},
		{"rm -r a", "remove /tmp/w/a", []string{"remove /tmp/w/a/b/g", "remove /tmp/w/a/b"}, nil},
		{"mkdir a", "create /tmp/w/a", nil, nil},
		{"touch a/new", "create /tmp/w/a/new", nil, []string{"overflow /tmp/w"}},
	} {
		change(step.script)
		got := w.until(t, step.last)
		for _, line := range step.told {
			if !slices.Contains(got, line) {
				t.Errorf("%s: %q is not among %q", step.script, line, got)
			}
		}
		for _, line := range step.not {
			if slices.Contains(got, line) {
				t.Errorf("%s: %q is among %q", step.script, line, got)
			}
		}
	}
}
