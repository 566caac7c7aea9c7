package cli_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/localtree"
	"github.com/caisson-run/caisson/runtime/files"
	"github.com/caisson-run/caisson/server"
)

// cpBox is a sandbox whose files are those below dir.
type cpBox struct {
	server.FileSession // the rest is not called
	dir                string
	fail               error // in the middle of a copy out
}

func (b *cpBox) Files(_ context.Context, ref string) (server.FileSession, error) {
	if ref != "box" {
		return nil, sbxerr.New(sbxerr.NotFound, "fake.files", "no sandbox %q", ref)
	}
	return b, nil
}

func (b *cpBox) Stat(_ context.Context, p string, _ bool) (files.Info, error) {
	info, err := os.Stat(filepath.Join(b.dir, p))
	if err != nil {
		return files.Info{}, sbxerr.New(sbxerr.FileAbsent, "fake.stat", "stat %q: %w", p, err)
	}
	if info.IsDir() {
		return files.Info{Type: "directory"}, nil
	}
	return files.Info{Type: "file"}, nil
}

func (b *cpBox) CopyOut(_ context.Context, p string, _ int64, w io.Writer) (files.Copied, error) {
	name := path.Base(p)
	if strings.HasSuffix(p, "/.") {
		name = "."
	}
	if err := localtree.Pack(filepath.Join(b.dir, p), name, w, nil); err != nil {
		return files.Copied{}, sbxerr.Wrap(sbxerr.FileAbsent, "fake.copy", err)
	}
	return files.Copied{LeftOut: 12, Names: []string{"/odd\x1b", "/fifo"}}, b.fail
}

func (b *cpBox) CopyIn(_ context.Context, p string, r io.Reader) (files.Copied, error) {
	var list []string
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return files.Copied{}, sbxerr.Wrap(sbxerr.Archive, "fake.copy", err)
		}
		list = append(list, h.Name)
	}
	err := os.WriteFile(filepath.Join(b.dir, "received"), []byte(p+": "+strings.Join(list, " ")), 0o600)
	return files.Copied{Entries: int64(len(list)), Bytes: 5}, err
}

// cp runs caisson cp against b, in the directory here.
func cp(t *testing.T, b *cpBox, here, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cp") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "api.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l, server.New(server.Deps{Files: b}), 50*time.Millisecond) }()
	defer func() { cancel(); <-ended }()
	t.Setenv("CAISSON_SOCKET", socket)
	t.Chdir(here)
	var out, errOut bytes.Buffer
	code = whole.Run(t.Context(), append([]string{"cp"}, args...), strings.NewReader(stdin), &out, &errOut)
	return code, out.String(), errOut.String()
}

func cpSetup(t *testing.T) (b *cpBox, here string) {
	t.Helper()
	b, here = &cpBox{dir: t.TempDir()}, t.TempDir()
	for _, dir := range []string{b.dir, here} {
		if err := errors.Join(os.MkdirAll(dir+"/src/sub", 0o755), os.WriteFile(dir+"/src/sub/f", []byte("hello"), 0o640), os.WriteFile(dir+"/one", []byte("1"), 0o755), os.Mkdir(dir+"/have", 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return b, here
}

func TestCpIn(t *testing.T) {
	for args, want := range map[string]string{
		"src box:/have":     "/have: src/ src/sub/ src/sub/f",
		"src/. box:/have":   "/have: ./ sub/ sub/f",
		". box:/have":       "/have: ./ have/ one src/ src/sub/ src/sub/f",
		"src box:/new":      "/: new/ new/sub/ new/sub/f",
		"src box:/have/new": "/have: new/ new/sub/ new/sub/f",
		"one box:/have":     "/have: one",
		"one box:/have/":    "/have/: one",
		"one box:/two":      "/: two",
		"one box:/one":      "/: one",
		"./src box:/have":   "/have: src/ src/sub/ src/sub/f",
	} {
		b, here := cpSetup(t)
		code, _, stderr := cp(t, b, here, "", strings.Fields(args)...)
		got, _ := os.ReadFile(b.dir + "/received")
		if code != 0 || string(got) != want {
			t.Errorf("%s: %d %q, got %q", args, code, stderr, got)
		}
	}
	b, here := cpSetup(t)
	var archive bytes.Buffer
	if err := localtree.Pack(here+"/src", "x", &archive, nil); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := cp(t, b, here, archive.String(), "--json", "-", "box:/have")
	got, _ := os.ReadFile(b.dir + "/received")
	if code != 0 || string(got) != "/have: x/ x/sub/ x/sub/f" || !strings.Contains(stdout, `"entries": 3`) {
		t.Errorf("%d %q %q, got %q", code, stdout, stderr, got)
	}
}

func TestCpOut(t *testing.T) {
	for args, want := range map[string]string{
		"box:/src have":      "have/src/sub/f",
		"box:/src/. have":    "have/sub/f",
		"box:/src new":       "new/sub/f",
		"box:/src .":         "src/sub/f",
		"box:/src/sub/f new": "new",
		"box:/src/sub/f one": "one",
	} {
		b, here := cpSetup(t)
		code, stdout, stderr := cp(t, b, here, "", strings.Fields(args)...)
		got, err := os.ReadFile(filepath.Join(here, want))
		if code != 0 || string(got) != "hello" || stdout != "" {
			t.Errorf("%s: %d %q %q: %q, %v", args, code, stdout, stderr, got, err)
		}
		if !strings.Contains(stderr, `left out "/odd\x1b"`) || !strings.Contains(stderr, "left out 10 more") {
			t.Errorf("%s: nothing is said of what is left out: %q", args, stderr)
		}
	}
	b, here := cpSetup(t)
	code, stdout, _ := cp(t, b, here, "", "box:/src", "-")
	h, err := tar.NewReader(strings.NewReader(stdout)).Next()
	if code != 0 || err != nil || h.Name != "src/" {
		t.Errorf("%d, %v, %v", code, h, err)
	}
}

func TestCpRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"a b":                  "neither side is in a sandbox",
		"box:/a box:/b":        "both sides are in a sandbox",
		"box: x":               "a path is empty",
		"--json box:/src -":    "leave out --json",
		"one box:/no/":         "there is no directory",
		"gone box:/have":       "no such file or directory",
		"other:/src .":         "no sandbox",
		"box:/src no/such/dir": "no such file or directory",
		"box:/src one":         "not a directory",
		"box:/gone new":        "no such file or directory",
		"./a:b ./c":            "neither side is in a sandbox",
	} {
		b, here := cpSetup(t)
		before := cpNames(t, here)
		code, stdout, stderr := cp(t, b, here, "", strings.Fields(args)...)
		if code != cli.ExitRuntime || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%s: %d %q %q", args, code, stdout, stderr)
		}
		if after := cpNames(t, here); after != before {
			t.Errorf("%s leaves %s", args, after)
		}
	}
}

// A copy that fails at its very end leaves nothing.
func TestCpOutThatBreaks(t *testing.T) {
	b, here := cpSetup(t)
	b.fail = sbxerr.New(sbxerr.FileFailed, "fake.copy", "the disk is gone")
	before := cpNames(t, here)
	code, _, stderr := cp(t, b, here, "", "box:/src", "new")
	if code != cli.ExitRuntime || !strings.Contains(stderr, "the disk is gone") || !strings.Contains(stderr, string(sbxerr.FileFailed)) {
		t.Errorf("%d %q", code, stderr)
	}
	if after := cpNames(t, here); after != before {
		t.Errorf("left behind: %s", after)
	}
}

func cpNames(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, e := range list {
		names += e.Name() + " "
	}
	return names
}
