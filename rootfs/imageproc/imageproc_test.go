package imageproc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/tests/need"
)

// What a process of these tests does.
var handlers = map[string]imageproc.Handler{
	"probe": func(c *imageproc.Conn, request json.RawMessage, files []*os.File) error {
		var p probe
		if err := json.Unmarshal(request, &p); err != nil {
			return err
		}
		return c.Send("seen", p.look(files))
	},
	"eat": func(c *imageproc.Conn, _ json.RawMessage, _ []*os.File) error {
		var kept [][]byte
		for range 2 * imageproc.Memory >> 20 {
			b := make([]byte, 1<<20)
			for n := 0; n < len(b); n += 4096 {
				b[n] = 1
			}
			kept = append(kept, b)
		}
		return c.Send("eaten", len(kept))
	},
	"hang": func(c *imageproc.Conn, _ json.RawMessage, _ []*os.File) error {
		if err := c.Send("hangs", os.Getpid()); err != nil {
			return err
		}
		for n := 0; ; n++ { // it never ends by itself
			spun.Store(int64(n))
		}
	},
	"attempts": func(c *imageproc.Conn, request json.RawMessage, _ []*os.File) error {
		var address string
		if err := json.Unmarshal(request, &address); err != nil {
			return err
		}
		return c.Send("attempted", attempts(address))
	},
	"stream": func(c *imageproc.Conn, request json.RawMessage, _ []*os.File) error {
		var n int
		if err := json.Unmarshal(request, &n); err != nil {
			return err
		}
		return c.SendStream(func(w io.Writer) error {
			_, err := io.CopyN(w, zeros{}, int64(n))
			return errors.Join(err, sbxerr.WithRemedy(sbxerr.ImageContent, "image.filter", errors.New("it holds \x1b[31m what it may not"), "leave it out"))
		})
	},
	"fail": func(_ *imageproc.Conn, request json.RawMessage, _ []*os.File) error {
		inner := sbxerr.New(sbxerr.ImageTooBig, "image.limit", "too much")
		return map[string]error{
			`"coded"`: sbxerr.WithRemedy(sbxerr.ImageFormat, "image.archive", fmt.Errorf("entry 1: %w", inner), "pack it again"),
			`"plain"`: errors.Join(errors.New("one"), inner),
			`"final"`: sbxerr.Final(sbxerr.New(sbxerr.Busy, "image.x", "never")),
		}[string(request)]
	},
}

func init() {
	if os.Args[0] == imageproc.Name {
		os.Exit(imageproc.Main(handlers))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// spun is what a process that hangs counts up.
var spun atomic.Int64

var own = imageproc.Program{Path: "/proc/self/exe"}

func start(t testing.TB, ctx context.Context, kind string, request any, change ...func(*imageproc.Job)) *imageproc.Process {
	t.Helper()
	need.Root(t, "it starts a process of another user")
	j := imageproc.Job{Kind: kind, What: "try it", Op: "test.job", Request: request}
	for _, c := range change {
		c(&j)
	}
	p, err := own.Start(ctx, j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// probe is what a process looks at.
type probe struct {
	File    string // that only root may read
	Victim  int    // a process of root
	Sibling int    // a process of the same user
}

// seen are the errors of what was tried; empty: it could be done.
type seen struct {
	Read, Attach, AttachSibling, Kill, Mount, Chown, Regain, Write, Status string
}

func told(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (p probe) look(files []*os.File) seen {
	_, err := os.ReadFile(p.File)
	s := seen{Read: told(err)}
	attach := func(pid int) string {
		err := unix.PtraceSeize(pid)
		if err == nil {
			_ = unix.PtraceDetach(pid)
		}
		return told(err)
	}
	s.Attach, s.AttachSibling = attach(p.Victim), attach(p.Sibling)
	s.Kill = told(unix.Kill(p.Victim, 0))
	s.Mount = told(unix.Mount("none", "/mnt", "tmpfs", 0, ""))
	s.Chown = told(unix.Fchown(int(files[0].Fd()), 0, 0))
	s.Regain = told(unix.Setuid(0))
	_, err = files[0].Write(make([]byte, 1000))
	s.Write = told(err)
	status, err := os.ReadFile("/proc/thread-self/status")
	s.Status = string(status) + told(err)
	return s
}

// attempts says of each attempt what became of it; empty: it succeeded.
func attempts(address string) map[string]string {
	became := map[string]string{}
	opened := func(name string, fd int, err error) {
		became[name] = told(err)
		if err == nil {
			_ = unix.Close(fd)
		}
	}
	for name, family := range map[string]int{"internet": unix.AF_INET, "unix": unix.AF_UNIX, "netlink": unix.AF_NETLINK} {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
		opened(name+" socket", fd, err)
	}
	_, err := net.Dial("tcp", address)
	became["dial"] = told(err)
	fd, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
	opened("read a file", fd, err)
	fd, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	opened("open a directory", fd, err)
	_, err = os.Lstat("/etc")
	became["look at a file"] = told(err)
	fd, err = unix.MemfdCreate("file", 0)
	opened("make a file", fd, err)
	became["run a program"] = told(exec.Command("/bin/true").Run())
	return became
}

// The process has no right that matters. This one, which has them, can do all of it.
func TestRights(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sibling := start(t, t.Context(), "hang", nil)
	var inner int
	if err := sibling.Expect("hangs", imageproc.MaxMessage, &inner); err != nil || inner != 1 {
		t.Fatalf("it is process %d of its namespace: %v", inner, err)
	}
	ask := probe{File: secret, Victim: os.Getpid(), Sibling: sibling.PID()}
	with := func(j *imageproc.Job) { j.Files, j.Disk, j.Host = []*os.File{file}, 1<<20, true }
	p := start(t, t.Context(), "probe", ask, with)
	var got seen
	if err := p.Expect("seen", imageproc.MaxMessage, &got); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(secret); err != nil {
		t.Errorf("this process: %v", err)
	}
	if err := unix.Kill(ask.Victim, 0); err != nil {
		t.Errorf("this process: %v", err)
	}
	if err := file.Chown(0, 0); err != nil {
		t.Errorf("this process: %v", err)
	}
	for what, refused := range map[string]string{
		"read": got.Read, "ptrace": got.Attach, "ptrace of its like": got.AttachSibling, "signal": got.Kill, "mount": got.Mount, "chown": got.Chown, "setuid": got.Regain,
	} {
		if refused == "" {
			t.Errorf("%s is allowed", what)
		}
	}
	if got.Write != "" {
		t.Errorf("its own file: %s", got.Write)
	}
	id := fmt.Sprintf("%d\t%[1]d\t%[1]d\t%[1]d\n", imageproc.ID)
	for _, want := range []string{
		"Uid:\t" + id, "Gid:\t" + id, "Groups:\t \n", "CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n",
		"CapEff:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n",
	} {
		if !strings.Contains(got.Status, want) {
			t.Errorf("its status lacks %q:\n%s", want, got.Status)
		}
	}
}

// The kernel can trace a process of the same user that is not closed to it: TestRights would see
// that.
func TestPtraceControl(t *testing.T) {
	need.Root(t, "it traces")
	p := start(t, t.Context(), "hang", nil)
	if err := p.Expect("hangs", imageproc.MaxMessage, new(int)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { // the thread ends, and with it what it traces is let go
		err := unix.PtraceSeize(p.PID())
		done <- err
	}()
	if err := <-done; err != nil {
		t.Errorf("root: %v", err)
	}
}

// A process is in a network without anything, and what it was not given it can neither open nor
// connect to. What reads the host may open its files, and shows that the attempts are possible.
func TestSealed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("this process: %v", err)
	}
	dial.Close()
	try := func(host bool) (got map[string]string) {
		p := start(t, t.Context(), "attempts", l.Addr().String(), func(j *imageproc.Job) { j.Host = host })
		if err := p.Expect("attempted", imageproc.MaxMessage, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	ofHost, sealed := try(true), try(false)
	for name, became := range ofHost {
		if (became == "") != (name != "dial") { // nothing but the network keeps it from the host
			t.Errorf("what reads the host: %s: %q", name, became)
		}
		if became := sealed[name]; !strings.Contains(became, "operation not permitted") {
			t.Errorf("sealed: %s: %q", name, became)
		}
	}
	if len(ofHost) != 9 || len(sealed) != len(ofHost) {
		t.Errorf("%d and %d attempts", len(ofHost), len(sealed))
	}
}

func TestMemory(t *testing.T) {
	p := start(t, t.Context(), "eat", nil)
	_, _, err := p.Next(imageproc.MaxMessage)
	if sbxerr.Of(err) != sbxerr.ImageProcess || !strings.Contains(err.Error(), "caisson-images, which was to try it, ran out of its memory of 768 MiB") {
		t.Errorf("error %v", err)
	}
	isGone(t, p.PID())
}

func TestKilled(t *testing.T) {
	p := start(t, t.Context(), "hang", nil)
	if err := p.Expect("hangs", imageproc.MaxMessage, new(int)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _, err := p.Next(imageproc.MaxMessage)
	if sbxerr.Of(err) != sbxerr.ImageProcess || !strings.Contains(err.Error(), "which was to try it, was killed: killed") {
		t.Errorf("error %v", err)
	}
	isGone(t, p.PID())
}

// A process that computes ends with its caller, at once.
func TestCanceled(t *testing.T) {
	for want, within := range map[sbxerr.Code]func() (context.Context, context.CancelFunc){
		sbxerr.Canceled: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		sbxerr.Deadline: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 5*time.Second) // to start on a busy host
		},
	} {
		ctx, cancel := within()
		defer cancel()
		p := start(t, ctx, "hang", nil)
		if err := p.Expect("hangs", imageproc.MaxMessage, new(int)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, _, err := p.Next(imageproc.MaxMessage)
			ended <- err
		}()
		if want == sbxerr.Canceled {
			cancel()
		} else {
			<-ctx.Done()
		}
		began := time.Now()
		err := <-ended
		if took := time.Since(began); took > 2*time.Second || // a busy host; 20 ms on a quiet one
			sbxerr.Of(err) != want {
			t.Errorf("%v after %v", err, took)
		}
		isGone(t, p.PID())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := own.Start(ctx, imageproc.Job{Kind: "hang", Op: "test.job"}); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("before: %v", err)
	}
}

// isGone expects that no process has the pid: it was waited for.
func isGone(t testing.TB, pid int) {
	t.Helper()
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("process %d: %v", pid, err)
	}
}

func TestStream(t *testing.T) {
	const size = 3<<20 + 17
	p := start(t, t.Context(), "stream", size)
	n, err := io.Copy(io.Discard, p.Stream())
	if n != size {
		t.Errorf("%d bytes", n)
	}
	err = p.Failed(err)
	if sbxerr.Of(err) != sbxerr.ImageContent || strings.ContainsRune(err.Error(), '\x1b') || !strings.Contains(err.Error(), "it holds [31m what it may not") || sbxerr.RemedyOf(err) != "leave it out" {
		t.Errorf("error %v, remedy %s", err, sbxerr.RemedyOf(err))
	}
}

// Errors come back as they were.
func TestFailures(t *testing.T) {
	for request, want := range map[string]struct {
		text, remedy string
		of           []sbxerr.Code
	}{
		"coded": {"image.archive [SBX-202]: entry 1: image.limit [SBX-204]: too much", "pack it again", []sbxerr.Code{sbxerr.ImageFormat, sbxerr.ImageTooBig}},
		"plain": {"one\nimage.limit [SBX-204]: too much", "", []sbxerr.Code{sbxerr.ImageTooBig}},
		"final": {"image.x [SBX-113]: never", "", []sbxerr.Code{sbxerr.Busy}},
	} {
		_, _, err := start(t, t.Context(), "fail", request).Next(imageproc.MaxMessage)
		if err == nil || err.Error() != want.text || sbxerr.Of(err) != want.of[0] || want.remedy != "" && sbxerr.RemedyOf(err) != want.remedy {
			t.Errorf("%s: %v, %s", request, err, sbxerr.RemedyOf(err))
			continue
		}
		for _, code := range want.of {
			if !errors.Is(err, code) {
				t.Errorf("%s: %v is no %s", request, err, code)
			}
		}
		if request == "final" && sbxerr.Retryable(err) {
			t.Error("it may be retried")
		}
	}
}

// The program does nothing where it has rights that not everybody has.
func TestRefusesRights(t *testing.T) {
	need.Root(t, "it starts processes of other users")
	for want, user := range map[string]syscall.Credential{
		"runs as 0, not as":   {},
		"has groups [0]":      {Uid: imageproc.ID, Gid: imageproc.ID, Groups: []uint32{0}},
		"runs as 65534, not ": {Uid: imageproc.ID, Gid: 65534},
		"":                    {Uid: imageproc.ID, Gid: imageproc.ID}, // it is past this check, and has no connection
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args, cmd.SysProcAttr = []string{imageproc.Name}, &syscall.SysProcAttr{Credential: &user}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || want == "" && len(out) > 0 {
			t.Errorf("%v prints %q, %v", user, out, err)
		}
	}
}
