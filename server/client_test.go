package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

func dial(t *testing.T, f *servertest.Fake) *api.Client {
	t.Helper()
	c := api.Dial(servertest.Listen(t, f))
	t.Cleanup(c.Close)
	return c
}

func command(args ...string) *caissonv1.RunSpec {
	return &caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: args}}
}

// await fails the test where nothing comes out of c.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
	}
	panic("unreachable")
}

func TestErrorsCrossTheSocket(t *testing.T) {
	f := &servertest.Fake{OnRun: func(context.Context, plan.Request, runtime.IO) (*runtime.Result, error) {
		return nil, sbxerr.WithRemedy(sbxerr.Mount, "a.b", fmt.Errorf("mount: %w", syscall.EACCES), "mend it")
	}}
	_, err := dial(t, f).Run(t.Context(), command("x"), api.IO{})
	var e *api.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %T %v", err, err)
	}
	want := api.Error{Code: sbxerr.Mount, Message: "mount", Cause: "permission denied", Remedy: "mend it", Class: sbxerr.ClassEngine}
	if e.RequestID == "" {
		t.Error("the error names no request")
	}
	e.RequestID = ""
	if *e != want {
		t.Errorf("got %+v, want %+v", *e, want)
	}
}

func TestImportImage(t *testing.T) {
	f := &servertest.Fake{OnImport: func(name string, r io.Reader, _ func(string)) (images.Imported, error) {
		data, err := io.ReadAll(r)
		return images.Imported{Image: images.Image{Name: name, SizeBytes: int64(len(data))}, Report: images.Report{Entries: 7}}, err
	}}
	archive := strings.Repeat("layer", 300_000)
	got, err := dial(t, f).ImportImage(t.Context(), "tools", iotest.HalfReader(strings.NewReader(archive)))
	if err != nil {
		t.Fatal(err)
	}
	if got.Image.Name != "tools" || got.Image.SizeBytes != int64(len(archive)) || got.Report.Entries != 7 {
		t.Errorf("got %v", got)
	}
}

// TestImportOfBrokenArchive checks that the daemon never takes a part of an
// archive for the whole.
func TestImportOfBrokenArchive(t *testing.T) {
	seen := make(chan error, 1)
	f := &servertest.Fake{OnImport: func(_ string, r io.Reader, _ func(string)) (images.Imported, error) {
		_, err := io.ReadAll(r)
		seen <- err
		return images.Imported{}, err
	}}
	broken := io.MultiReader(strings.NewReader("half"), &lateError{delay: 50 * time.Millisecond})
	_, err := dial(t, f).ImportImage(t.Context(), "half", broken)
	if !errors.Is(err, sbxerr.ClientIO) || !strings.Contains(err.Error(), "disk gone") {
		t.Errorf("got %v", err)
	}
	if err := await(t, "end of the import", seen); err == nil {
		t.Error("the daemon saw a clean end")
	}
}

type lateError struct{ delay time.Duration }

func (l *lateError) Read([]byte) (int, error) {
	time.Sleep(l.delay)
	return 0, errors.New("disk gone")
}

// TestImportRefusedEarly has a daemon that refuses before it has read all.
func TestImportRefusedEarly(t *testing.T) {
	f := &servertest.Fake{OnImport: func(_ string, r io.Reader, _ func(string)) (images.Imported, error) {
		_, err := io.ReadFull(r, make([]byte, 10))
		return images.Imported{}, errors.Join(err, sbxerr.New(sbxerr.ImageTooBig, "a.b", "too big"))
	}}
	_, err := dial(t, f).ImportImage(t.Context(), "", &zeroReader{})
	if !errors.Is(err, sbxerr.ImageTooBig) {
		t.Errorf("got %v, want %v", err, sbxerr.ImageTooBig)
	}
}

func TestFromHost(t *testing.T) {
	f := &servertest.Fake{OnHost: func(req images.FromHostRequest, progress func(string)) (images.Imported, error) {
		if req.Packages[0] == "absent" {
			return images.Imported{}, sbxerr.New(sbxerr.FromHost, "a.b", "no package")
		}
		progress(req.Packages[0])
		return images.Imported{Image: images.Image{Name: req.Name}}, nil
	}}
	c := dial(t, f)
	var lines []string
	got, err := c.FromHost(t.Context(), &caissonv1.FromHostRequest{Name: "py", Packages: []string{"python3"}}, func(s string) { lines = append(lines, s) })
	if err != nil || got.Image.Name != "py" || len(lines) != 1 {
		t.Errorf("got %v, %v, progress %q", got, err, lines)
	}
	_, err = c.FromHost(t.Context(), &caissonv1.FromHostRequest{Name: "py", Packages: []string{"absent"}}, nil)
	if !errors.Is(err, sbxerr.FromHost) {
		t.Errorf("got %v, want %v", err, sbxerr.FromHost)
	}
}

func TestLogs(t *testing.T) {
	f := &servertest.Fake{OnLogs: func(_ context.Context, ref string, o runtime.LogOptions, stdout, stderr io.Writer) error {
		var both sync.WaitGroup // the streams are independent of each other
		both.Go(func() { fmt.Fprintf(stdout, "%s %v %q", ref, o.Follow, o.Stream) })
		both.Go(func() { fmt.Fprint(stderr, "err") })
		both.Wait()
		return nil
	}}
	var stdout, stderr bytes.Buffer
	c := dial(t, f)
	if err := c.Logs(t.Context(), &caissonv1.LogsRequest{Ref: "a", Follow: true, Stream: "stdout"}, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != `a true "stdout"` || stderr.String() != "err" {
		t.Errorf("stdout %q, stderr %q", &stdout, &stderr)
	}
	err := c.Logs(t.Context(), &caissonv1.LogsRequest{Ref: "a"}, failingWriter{syscall.ENOSPC}, nil)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want the writer's error", err)
	}
	err = dial(t, &servertest.Fake{}).Logs(t.Context(), &caissonv1.LogsRequest{Ref: "a"}, nil, nil)
	if !errors.Is(err, sbxerr.NotFound) {
		t.Errorf("got %v, want %v", err, sbxerr.NotFound)
	}
}

func TestDaemonOff(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	tests := []struct{ name, socket, message, remedy string }{
		{"absent", filepath.Join(dir, "none.sock"), "there is no such socket", "start it as root"},
		{"stale", stale, "left behind", "start it again"},
		{"not a socket", dir, "left behind", "start it again"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := api.Dial(tt.socket)
			_, unary := c.List(t.Context(), &caissonv1.ListRequest{})
			_, stream := c.Run(t.Context(), command("x"), api.IO{Stdin: strings.NewReader("x")})
			for _, err := range []error{unary, stream, api.Ping(t.Context(), tt.socket)} {
				var e *api.Error
				if !errors.As(err, &e) || e.Code != sbxerr.DaemonOff {
					t.Fatalf("got %v, want %v", err, sbxerr.DaemonOff)
				}
				if !strings.Contains(e.Message, tt.message) || !strings.Contains(e.Remedy, tt.remedy) {
					t.Errorf("message %q, remedy %q", e.Message, e.Remedy)
				}
			}
		})
	}
}

func TestPing(t *testing.T) {
	if err := api.Ping(t.Context(), servertest.Listen(t, &servertest.Fake{})); err != nil {
		t.Error(err)
	}
}

// TestConnectionBreaks has daemons that are killed at any moment of a call.
func TestConnectionBreaks(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for i := 0; ; i++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			time.Sleep(time.Duration(i%5) * time.Millisecond)
			if i%2 == 0 {
				_, _ = conn.Read(make([]byte, 1024))
			}
			conn.Close()
		}
	}()
	for range 50 {
		c := api.Dial(socket)
		_, run := c.Run(t.Context(), command("x"), api.IO{})
		_, unary := c.List(t.Context(), &caissonv1.ListRequest{})
		for _, err := range []error{run, unary} {
			if !errors.Is(err, sbxerr.APIBroken) {
				t.Errorf("got %v, want %v", err, sbxerr.APIBroken)
			}
		}
		c.Close()
	}
}

// TestStranger has something else than caissond behind the socket.
func TestStranger(t *testing.T) {
	dir, err := os.MkdirTemp("", "caisson")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: &protocols, Handler: http.NotFoundHandler()}
	go srv.Serve(l)
	defer srv.Close()
	c := api.Dial(filepath.Join(dir, "s"))
	if _, err := c.List(t.Context(), &caissonv1.ListRequest{}); !errors.Is(err, sbxerr.APIUsage) {
		t.Errorf("got %v, want %v", err, sbxerr.APIUsage)
	}
}

func TestUnaryCalls(t *testing.T) {
	f := &servertest.Fake{
		Infos:        []runtime.Info{{ID: "a"}},
		Details:      map[string]*runtime.Detail{"a": {Info: runtime.Info{ID: "a"}}},
		Images:       []images.Image{{Name: "base"}},
		ImageDetails: map[string]*images.Detail{"base": {}},
		Supports:     []runtime.Capability{{Field: "pids"}},
		OnRemove:     func(ref string, _ bool) (string, error) { return ref, nil },
	}
	c := dial(t, f)
	ctx := t.Context()
	calls := map[string]func() (int, error){
		"List": func() (int, error) {
			r, err := c.List(ctx, &caissonv1.ListRequest{})
			return len(r.GetSandboxes()), err
		},
		"Inspect": func() (int, error) {
			r, err := c.Inspect(ctx, &caissonv1.InspectRequest{Ref: "a"})
			return len(r.GetSandbox().GetId()), err
		},
		"Remove": func() (int, error) {
			r, err := c.Remove(ctx, &caissonv1.RemoveRequest{Ref: "a"})
			return len(r.GetId()), err
		},
		"Cleanup": func() (int, error) {
			r, err := c.Cleanup(ctx, &caissonv1.CleanupRequest{})
			return 1 + len(r.GetLeftovers()), err
		},
		"Spec": func() (int, error) {
			r, err := c.Spec(ctx, &caissonv1.SpecRequest{Spec: command("x")})
			return len(r.GetOciSpecJson()) - 1, err
		},
		"ListImages": func() (int, error) {
			r, err := c.ListImages(ctx, &caissonv1.ListImagesRequest{})
			return len(r.GetImages()), err
		},
		"InspectImage": func() (int, error) {
			_, err := c.InspectImage(ctx, &caissonv1.InspectImageRequest{Name: "base"})
			return 1, err
		},
		"RemoveImage": func() (int, error) {
			_, err := c.RemoveImage(ctx, &caissonv1.RemoveImageRequest{Name: "base"})
			return 1, err
		},
		"Version": func() (int, error) {
			_, err := c.Version(ctx, &caissonv1.VersionRequest{})
			return 1, err
		},
		"Doctor": func() (int, error) {
			_, err := c.Doctor(ctx, &caissonv1.DoctorRequest{})
			return 1, err
		},
		"Capabilities": func() (int, error) {
			r, err := c.Capabilities(ctx, &caissonv1.CapabilitiesRequest{})
			return len(r.GetCapabilities()), err
		},
	}
	for name, call := range calls {
		if n, err := call(); err != nil || n != 1 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}
