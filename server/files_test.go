package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/files"
	"github.com/caisson-run/caisson/server"
)

// fakeFiles is the one sandbox "box". It records what is asked, and keeps what
// is written.
type fakeFiles struct {
	asked    []any
	received string
	took     chan struct{} // closed when something was received; nil does not tell
	outcome  chan error    // gets how receiving ended; nil does not tell
	err      error         // of everything
	left     files.Copied
	content  string
	watching chan struct{} // closed when a watch has ended
}

func (f *fakeFiles) Files(_ context.Context, ref string) (server.FileSession, error) {
	if ref != "box" {
		return nil, sbxerr.New(sbxerr.NotFound, "fake.files", "no sandbox %q", ref)
	}
	return f, nil
}

func (f *fakeFiles) ask(args ...any) { f.asked = args }

var aTime = time.Unix(1_600_000_000, 5).UTC()

func anInfo(path string) files.Info {
	return files.Info{Path: path, Type: "file", Size: 3, Mode: 0o640, UID: 1, GID: 2, ModTime: aTime}
}

func (f *fakeFiles) Stat(_ context.Context, path string, follow bool) (files.Info, error) {
	f.ask(path, follow)
	return anInfo(path), f.err
}

func (f *fakeFiles) ListDir(_ context.Context, path string, depth uint32) ([]files.Info, bool, error) {
	f.ask(path, depth)
	return []files.Info{anInfo("a"), anInfo("b\xff")}, true, f.err
}

func (f *fakeFiles) Read(_ context.Context, path string, offset, length int64, info func(files.Info) error, w io.Writer) error {
	f.ask(path, offset, length)
	if f.err != nil {
		return f.err
	}
	if err := info(anInfo(path)); err != nil {
		return err
	}
	_, err := io.WriteString(w, f.content)
	return err
}

func (f *fakeFiles) Write(_ context.Context, path string, mode *uint32, parents bool, content io.Reader) (files.Info, error) {
	f.ask(path, mode, parents)
	return anInfo(path), f.receive(content)
}

func (f *fakeFiles) receive(content io.Reader) error {
	if f.err != nil {
		return f.err
	}
	if f.took != nil {
		content = io.TeeReader(content, onWrite(sync.OnceFunc(func() { close(f.took) })))
	}
	b, err := io.ReadAll(content)
	f.received = string(b)
	if f.outcome != nil {
		f.outcome <- err
	}
	return err
}

// onWrite is a writer that calls itself.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

func (f *fakeFiles) MakeDir(_ context.Context, path string, mode *uint32, parents bool) (files.Info, error) {
	f.ask(path, mode, parents)
	return anInfo(path), f.err
}

func (f *fakeFiles) Move(_ context.Context, from, to string, replace bool) (files.Info, error) {
	f.ask(from, to, replace)
	return anInfo(to), f.err
}

func (f *fakeFiles) Remove(_ context.Context, path string, recursive bool) error {
	f.ask(path, recursive)
	return f.err
}

func (f *fakeFiles) Watch(ctx context.Context, path string, recursive bool, ready func(), event func(files.Event) error) error {
	f.ask(path, recursive)
	if f.err != nil {
		return f.err
	}
	defer close(f.watching)
	ready()
	if err := event(files.Event{Path: path + "/x\xff", Type: "create"}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (f *fakeFiles) CopyOut(_ context.Context, path string, _ int64, w io.Writer) (files.Copied, error) {
	f.ask(path)
	if _, err := io.WriteString(w, f.content); err != nil {
		return f.left, err
	}
	return f.left, f.err
}

func (f *fakeFiles) CopyIn(_ context.Context, path string, r io.Reader) (files.Copied, error) {
	f.ask(path)
	return files.Copied{Entries: 7, Bytes: 8}, f.receive(r)
}

// serveFiles serves f and returns a client.
func serveFiles(t *testing.T, f *fakeFiles) *api.Client {
	t.Helper()
	c := api.Dial(serveDeps(t, server.Deps{Files: f}))
	t.Cleanup(c.Close)
	return c
}

// serveDeps serves d until the test ends.
func serveDeps(t *testing.T, d server.Deps) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "files") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "api.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l, server.New(d), 50*time.Millisecond) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return socket
}

func TestFilesSmall(t *testing.T) {
	f := &fakeFiles{}
	c := serveFiles(t, f)
	ctx := t.Context()
	mode := uint32(0o700)
	for name, tc := range map[string]struct {
		call func() error
		want []any
	}{
		"stat": {func() error {
			_, err := c.Stat(ctx, &caissonv1.StatRequest{Ref: "box", Path: "/p", Follow: true})
			return err
		}, []any{"/p", true}},
		"list": {func() error {
			r, err := c.ListDir(ctx, &caissonv1.ListDirRequest{Ref: "box", Path: "/p", Depth: 3})
			if err == nil && (len(r.Files) != 2 || !r.Truncated || r.Files[0].PathBytes != nil || r.Files[1].Path != "b\ufffd" || string(r.Files[1].PathBytes) != "b\xff") {
				t.Errorf("list: %v", r)
			}
			return err
		}, []any{"/p", uint32(3)}},
		"make": {func() error {
			_, err := c.MakeDir(ctx, &caissonv1.MakeDirRequest{Ref: "box", Path: "/p", Mode: &mode, MakeParents: true})
			return err
		}, []any{"/p", &mode, true}},
		"move": {func() error {
			_, err := c.MoveFile(ctx, &caissonv1.MoveFileRequest{Ref: "box", From: "/p", To: "/q", Replace: true})
			return err
		}, []any{"/p", "/q", true}},
		"remove": {func() error {
			_, err := c.RemoveFile(ctx, &caissonv1.RemoveFileRequest{Ref: "box", Path: "/p", Recursive: true})
			return err
		}, []any{"/p", true}},
	} {
		f.err = nil
		if err := tc.call(); err != nil || !reflect.DeepEqual(f.asked, tc.want) {
			t.Errorf("%s: %v, asked %v", name, err, f.asked)
		}
		f.err = sbxerr.New(sbxerr.FileAbsent, "files.x", "x %q: gone", "/p")
		if err := tc.call(); !errors.Is(err, sbxerr.FileAbsent) || !strings.Contains(err.Error(), `x "/p": gone`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.err = nil
	r, err := c.Stat(ctx, &caissonv1.StatRequest{Ref: "box", Path: "/p"})
	if i := r; err != nil || i.Type != "file" || i.SizeBytes != 3 || i.Mode != 0o640 || i.Uid != 1 || i.Gid != 2 || !i.ModifiedAt.AsTime().Equal(aTime) {
		t.Errorf("%v, %v", r, err)
	}
	_, err = c.Stat(ctx, &caissonv1.StatRequest{Ref: "other", Path: "/p"})
	if !errors.Is(err, sbxerr.NotFound) {
		t.Errorf("another sandbox: %v", err)
	}
	_, err = c.Stat(ctx, &caissonv1.StatRequest{Ref: "../box", Path: "/p"})
	if !errors.Is(err, sbxerr.Config) {
		t.Errorf("a reference that is none: %v", err)
	}
}

func TestFilesReadAndWrite(t *testing.T) {
	f := &fakeFiles{content: strings.Repeat("content ", 100_000)}
	c := serveFiles(t, f)
	ctx := t.Context()
	var b bytes.Buffer
	file, err := c.ReadFile(ctx, &caissonv1.ReadFileRequest{Ref: "box", Path: "/p", Offset: 5, Length: 6}, &b)
	if err != nil || b.String() != f.content || file.Path != "/p" || !reflect.DeepEqual(f.asked, []any{"/p", int64(5), int64(6)}) {
		t.Errorf("%d bytes, %v, %v", b.Len(), file, err)
	}
	full := errors.New("full")
	_, err = c.ReadFile(ctx, &caissonv1.ReadFileRequest{Ref: "box", Path: "/p"}, failingWriter{full})
	if !errors.Is(err, sbxerr.ClientIO) || !errors.Is(err, full) {
		t.Errorf("a writer that fails: %v", err)
	}
	mode := uint32(0o600)
	header := &caissonv1.WriteFileHeader{Ref: "box", Path: "/p", Mode: &mode, MakeParents: true}
	w, err := c.WriteFile(ctx, header, strings.NewReader(f.content))
	if err != nil || f.received != f.content || w.Path != "/p" || !reflect.DeepEqual(f.asked, []any{"/p", &mode, true}) {
		t.Errorf("%d bytes, %v, %v", len(f.received), w, err)
	}
	if _, err := c.WriteFile(ctx, header, strings.NewReader("")); err != nil || f.received != "" {
		t.Errorf("an empty file: %q, %v", f.received, err)
	}
	f.err = sbxerr.New(sbxerr.FileSpace, "files.write", "no room")
	if _, err := c.WriteFile(ctx, header, endless{}); !errors.Is(err, sbxerr.FileSpace) {
		t.Errorf("a refusal while sending: %v", err)
	}
	if _, err := c.ReadFile(ctx, &caissonv1.ReadFileRequest{Ref: "box", Path: "/p"}, &b); !errors.Is(err, sbxerr.FileSpace) {
		t.Errorf("a refusal to read: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A source that breaks must reach the sandbox as an error, never as the end.
func TestFilesBrokenSource(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, send := range map[string]func(*api.Client, io.Reader) error{
		"write": func(c *api.Client, r io.Reader) error {
			_, err := c.WriteFile(t.Context(), &caissonv1.WriteFileHeader{Ref: "box", Path: "/p"}, r)
			return err
		},
		"copy": func(c *api.Client, r io.Reader) error {
			_, err := c.CopyIn(t.Context(), &caissonv1.CopyInHeader{Ref: "box", Path: "/p"}, r)
			return err
		},
	} {
		f := &fakeFiles{took: make(chan struct{}), outcome: make(chan error, 1)}
		source := io.MultiReader(strings.NewReader("part"), after(f.took), iotest.ErrReader(broken))
		if err := send(serveFiles(t, f), source); !errors.Is(err, sbxerr.ClientIO) || !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		if err := <-f.outcome; sbxerr.Of(err) != sbxerr.Canceled {
			t.Errorf("%s: the sandbox got a part and then %v", name, err)
		}
	}
}

// after is an empty reader that waits.
type after chan struct{}

func (c after) Read([]byte) (int, error) { <-c; return 0, io.EOF }

// So must a caller that gives up in the middle.
func TestFilesCallerGivesUp(t *testing.T) {
	f := &fakeFiles{took: make(chan struct{}), outcome: make(chan error, 1)}
	c := serveFiles(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-f.took; cancel() }()
	if _, err := c.WriteFile(ctx, &caissonv1.WriteFileHeader{Ref: "box", Path: "/p"}, endless{}); !errors.Is(err, sbxerr.Canceled) {
		t.Errorf("%v", err)
	}
	if err := <-f.outcome; sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("the sandbox got a part and then %v", err)
	}
}

func TestFilesCopies(t *testing.T) {
	f := &fakeFiles{content: strings.Repeat("tar", 100_000), left: files.Copied{LeftOut: 12, Names: []string{"/p/a\x1b", "/p/b"}}}
	c := serveFiles(t, f)
	ctx := t.Context()
	var b bytes.Buffer
	left, err := c.CopyOut(ctx, &caissonv1.CopyOutRequest{Ref: "box", Path: "/p"}, &b)
	if want := (api.LeftOut{Count: 12, Names: []string{`"/p/a\x1b"`, `"/p/b"`}}); err != nil || b.String() != f.content || !reflect.DeepEqual(left, want) {
		t.Errorf("%d bytes, %+v, %v", b.Len(), left, err)
	}
	in, err := c.CopyIn(ctx, &caissonv1.CopyInHeader{Ref: "box", Path: "/p"}, strings.NewReader(f.content))
	if err != nil || f.received != f.content || in.Entries != 7 || in.Bytes != 8 {
		t.Errorf("%d bytes, %v, %v", len(f.received), in, err)
	}
	f.err = sbxerr.New(sbxerr.Archive, "files.copy", "the name holds \"..\"")
	if _, err = c.CopyIn(ctx, &caissonv1.CopyInHeader{Ref: "box", Path: "/p"}, endless{}); !errors.Is(err, sbxerr.Archive) {
		t.Errorf("%v", err)
	}
	if _, err = c.CopyOut(ctx, &caissonv1.CopyOutRequest{Ref: "box", Path: "/p"}, &b); !errors.Is(err, sbxerr.Archive) {
		t.Errorf("%v", err)
	}
}

func TestFilesWatch(t *testing.T) {
	f := &fakeFiles{watching: make(chan struct{})}
	c := serveFiles(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := false
	var events []*caissonv1.FileEvent
	err := c.WatchFiles(ctx, &caissonv1.WatchFilesRequest{Ref: "box", Path: "/p", Recursive: true}, func() { ready = true }, func(e *caissonv1.FileEvent) error {
		events = append(events, e)
		cancel()
		return nil
	})
	if !errors.Is(err, sbxerr.Canceled) || !ready || len(events) != 1 || events[0].Path != "/p/x\ufffd" || string(events[0].PathBytes) != "/p/x\xff" || events[0].Type != "create" {
		t.Errorf("%v, %v, %v", err, ready, events)
	}
	<-f.watching // the daemon's side ends with its caller
	f.err = sbxerr.New(sbxerr.FileTooBig, "files.watch", "too many")
	err = c.WatchFiles(t.Context(), &caissonv1.WatchFilesRequest{Ref: "box", Path: "/p"}, nil, nil)
	if !errors.Is(err, sbxerr.FileTooBig) {
		t.Errorf("%v", err)
	}
}
