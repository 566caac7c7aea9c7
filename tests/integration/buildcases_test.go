package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/tools/txtar"

	"github.com/caisson-run/caisson/tests/harness"
)

// buildCase is one file of testdata/builds: a Dockerfile, the files of its context, and what
// must come of it. The lines before the first file prepare it:
//
//	args ARG…             arguments of image build
//	fails TEXT            the build fails, and says so; once for each text
//	warns TEXT            the build warns
//	runs TEXT             the output of the steps has a line
//	cached                a second build does no step again
//	mkdir, fifo NAME      in the context, as all below
//	file NAME TEXT
//	chmod NAME MODE
//	symlink NAME TARGET
//	hardlink NAME OLD
//	pack NAME DIR         a tar of a folder, packed as the name says; the folder goes
//
// http://files.example is a server; see fileServer. A name in quotes is one of Go's. The file "tree" has the entries in which the image differs
// from the one that the last FROM names.
type buildCase struct {
	name    string
	dir     string
	args    []string
	fails   []string
	warns   []string
	runs    []string
	cached  bool
	builds  bool // "tree" is there
	tree    string
	against string // image of the last FROM; empty: scratch
}

// TestBuilds builds all of testdata/builds, and compares each entry of what comes out.
func TestBuilds(t *testing.T) {
	d := harness.StartWith(t, newFileServer(t, false).config())
	usrmerged(t, d)
	files, err := filepath.Glob("testdata/builds/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 40 {
		t.Fatalf("only %d builds", len(files))
	}
	bases := map[string]imageTree{"": {}, "base": treeOf(t, d, "base"), "usrmerged": treeOf(t, d, "usrmerged")}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			c := readCase(t, file)
			c.check(t, d, bases[c.against])
		})
	}
}

// usrmerged makes an image like Debian's: /bin and /lib are links, and there are users.
func usrmerged(t *testing.T, d *harness.Daemon) {
	t.Helper()
	dir := recipe(t, `FROM base AS base
USER root
RUN mkdir -p /m/usr/bin /m/usr/lib /m/etc /m/tmp /m/root /m/srv/full && cp -a /bin/busybox /bin/sh /bin/cat /bin/ls /m/usr/bin/ && \
    ln -s usr/bin /m/bin && ln -s usr/lib /m/lib && echo kept > /m/srv/full/kept && echo lib > /m/usr/lib/libc && \
    printf 'root:x:0:0:root:/root:/bin/sh\napp:x:1500:1501:app:/srv/app:/bin/sh\n' > /m/etc/passwd && printf 'root:x:0:\nstaff:x:50:\napp:x:1501:\n' > /m/etc/group
FROM scratch
COPY --from=base /m /
`, nil)
	d.Run(t, "image", "build", "usrmerged", dir)
}

func readCase(t *testing.T, file string) buildCase {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := buildCase{name: "case-" + strings.TrimSuffix(filepath.Base(file), ".txtar"), dir: t.TempDir()}
	for _, f := range a.Files {
		switch f.Name {
		case "tree":
			c.tree, c.builds = string(f.Data), true
			continue
		case "Dockerfile":
			c.against = lastFrom(string(f.Data))
		}
		path := filepath.Join(c.dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(string(a.Comment)) {
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(line, "#") {
			if err := c.prepare(words, strings.TrimSpace(strings.TrimSpace(line)[len(words[0]):])); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	return c
}

// lastFrom is the image, not the stage, that the last stage of a file begins with.
func lastFrom(file string) (image string) {
	stages := map[string]string{"scratch": "", "$BASE": ""}
	for line := range strings.Lines(file) {
		words := strings.Fields(line)
		if len(words) > 2 && strings.HasPrefix(words[1], "--") {
			words = slices.Delete(words, 1, 2)
		}
		if len(words) < 2 || words[0] != "FROM" {
			continue
		}
		image = words[1]
		if from, ok := stages[image]; ok {
			image = from
		}
		if len(words) == 4 {
			stages[words[3]] = image
		}
	}
	return image
}

// prepare does one line of a case.
func (c *buildCase) prepare(words []string, rest string) error {
	for i, w := range words[1:] {
		if text, err := strconv.Unquote(w); err == nil {
			words[i+1] = text
		}
	}
	at := func(n int) string { return filepath.Join(c.dir, words[n]) }
	switch words[0] {
	case "args":
		c.args = append(c.args, words[1:]...)
	case "fails":
		c.fails = append(c.fails, rest)
	case "warns":
		c.warns = append(c.warns, rest)
	case "runs":
		c.runs = append(c.runs, rest)
	case "cached":
		c.cached = true
	case "mkdir":
		return os.MkdirAll(at(1), 0o755)
	case "file":
		return os.WriteFile(at(1), []byte(words[2]), 0o644)
	case "fifo":
		return syscall.Mkfifo(at(1), 0o644)
	case "chmod":
		mode, err := strconv.ParseUint(words[2], 8, 32)
		if err != nil {
			return err
		}
		return syscall.Chmod(at(1), uint32(mode))
	case "symlink":
		return os.Symlink(words[2], at(1))
	case "hardlink":
		return os.Link(at(2), at(1))
	case "pack":
		return pack(at(1), at(2))
	default:
		return os.ErrInvalid
	}
	return nil
}

// pack makes a tar of a folder, whose files belong to 7:8, and removes the folder. A file
// called zENTRIES has further entries: TYPE NAME TARGET.
func pack(name, dir string) error {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if entry.Name() == "zENTRIES" {
			return further(w, path)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target, _ := os.Readlink(path) // of a link
		h, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		h.Name, h.Uid, h.Gid = strings.TrimPrefix(path, dir+"/"), 7, 8
		if entry.IsDir() {
			h.Name += "/"
		}
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	})
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return err
	}
	data := out.Bytes()
	var packed bytes.Buffer
	var packer io.WriteCloser
	switch {
	case strings.Contains(name, "gz"):
		packer = gzip.NewWriter(&packed)
	case strings.Contains(name, "zst"):
		packer, err = zstd.NewWriter(&packed)
	}
	if packer != nil && err == nil {
		if _, err = packer.Write(data); err == nil {
			err = packer.Close()
		}
		data = packed.Bytes()
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = os.WriteFile(name, data, 0o644)
	}
	return err
}

func further(w *tar.Writer, list string) error {
	data, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		words := append(strings.Fields(line), "")
		h := &tar.Header{Typeflag: words[0][0], Name: words[1], Linkname: words[2], Mode: 0o4755}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
	}
	return nil
}

// check builds c and compares.
func (c *buildCase) check(t *testing.T, d *harness.Daemon, base imageTree) {
	t.Helper()
	args := append([]string{"image", "build", c.name, c.dir}, c.args...)
	r := d.Try(args...)
	for _, text := range c.fails {
		if r.Code == 0 || !strings.Contains(r.Stderr, text) {
			t.Errorf("exit code %d, want %q:\n%s", r.Code, text, r.Stderr)
		}
	}
	for _, text := range c.warns {
		if strings.Count(r.Stderr, "warning: "+text) != 1 {
			t.Errorf("no warning %q, or several:\n%s", text, r.Stderr)
		}
	}
	if n := strings.Count(r.Stderr, "warning: "); n != len(c.warns) {
		t.Errorf("%d warnings, want %d:\n%s", n, len(c.warns), r.Stderr)
	}
	for _, text := range c.runs {
		if !strings.Contains(r.Stderr, "\n"+text+"\n") {
			t.Errorf("no output %q:\n%s", text, r.Stderr)
		}
	}
	if len(c.fails) > 0 {
		if c.builds || d.Try("image", "inspect", c.name).Code == 0 {
			t.Error("there is an image, or a tree for one")
		}
		return
	}
	if r.Code != 0 {
		t.Fatalf("exit code %d:\n%s", r.Code, r.Stderr)
	}
	got := treeOf(t, d, c.name).against(base)
	if got != c.tree {
		t.Errorf("the image has\n%s\nwant\n%s", got, c.tree)
	}
	if c.cached {
		for line := range strings.Lines(d.Run(t, args...).Stderr) {
			if strings.HasPrefix(line, "[") && !strings.Contains(line, "] FROM ") && !strings.HasSuffix(line, "(cached)\n") {
				t.Errorf("a second build does the step again: %s", line)
			}
		}
	}
}
