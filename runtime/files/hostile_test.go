package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	wire "github.com/caisson-run/caisson/initproto/files"
)

// hostile is a Client whose process is the test: it does what act says after it
// got the first request.
func hostile(t testing.TB, limits Limits, act func(conn net.Conn)) *Client {
	t.Helper()
	ours, inside, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	theirs, err := net.FileConn(inside)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		header := make([]byte, wire.HeaderSize)
		if _, err := io.ReadFull(theirs, header); err != nil {
			return
		}
		_, n, err := wire.ParseHeader(header)
		if err == nil {
			_, err = io.CopyN(io.Discard, theirs, int64(n))
		}
		if err == nil {
			act(theirs)
		}
	}()
	c := New(ours, limits)
	t.Cleanup(func() { c.Close(); theirs.Close(); <-done })
	return c
}

// says sends frames and leaves.
func says(frames ...[]byte) func(net.Conn) {
	return func(conn net.Conn) { _, _ = conn.Write(bytes.Join(frames, nil)) }
}

func dataFrame(n int) []byte {
	b := make([]byte, wire.HeaderSize+n)
	wire.PutHeader(b, wire.KindData, n)
	return b
}

func rawFrame(kind wire.Kind, length int, body string) []byte {
	b := make([]byte, wire.HeaderSize)
	wire.PutHeader(b, kind, length)
	return append(b, body...)
}

var (
	aDir  = wire.Info{Type: wire.TypeDir, Mode: 0o755}.Frame()
	aFile = wire.Info{Type: wire.TypeFile, Size: 3, Path: "a"}.Frame()
	aDone = wire.Done{}.Frame()
)

func someInfo(Info) error { return nil }

// requests make each kind of request.
var requests = map[string]func(context.Context, *Client) error{
	"stat": func(ctx context.Context, c *Client) error { _, err := c.Stat(ctx, "/x", false); return err },
	"list": func(ctx context.Context, c *Client) error { _, _, err := c.ListDir(ctx, "/x", 1); return err },
	"read": func(ctx context.Context, c *Client) error { return c.Read(ctx, "/x", 0, 10, someInfo, io.Discard) },
	"write": func(ctx context.Context, c *Client) error {
		_, err := c.Write(ctx, "/x", nil, false, strings.NewReader("abc"))
		return err
	},
	"make":   func(ctx context.Context, c *Client) error { _, err := c.MakeDir(ctx, "/x", nil, false); return err },
	"move":   func(ctx context.Context, c *Client) error { _, err := c.Move(ctx, "/x", "/y", false); return err },
	"remove": func(ctx context.Context, c *Client) error { return c.Remove(ctx, "/x", true) },
	"watch": func(ctx context.Context, c *Client) error {
		return c.Watch(ctx, "/x", true, func() {}, func(Event) error { return nil })
	},
	"out": func(ctx context.Context, c *Client) error {
		_, err := c.CopyOut(ctx, "/x", 1<<40, io.Discard)
		return err
	},
	"in": func(ctx context.Context, c *Client) error {
		var b bytes.Buffer
		b.Write(make([]byte, 1024)) // an empty archive
		_, err := c.CopyIn(ctx, "/x", &b)
		return err
	},
}

// Whatever a request is answered with that is no answer ends in SBX-604.
func TestBrokenAnswers(t *testing.T) {
	for name, act := range map[string]func(net.Conn){
		"nothing":            says(),
		"half a header":      says([]byte{byte(wire.KindDone), 1}),
		"half a body":        says(rawFrame(wire.KindEntry, 40, "x")),
		"unknown kind":       says(rawFrame(200, 0, "")),
		"a request":          says(wire.Request{Op: wire.OpStat, Path: "/"}.Frame()),
		"huge data":          says(rawFrame(wire.KindData, 1<<31, "")),
		"huge entry":         says(rawFrame(wire.KindEntry, 1<<20, "")),
		"garbage in entry":   says(rawFrame(wire.KindEntry, 3, "abc")),
		"garbage in done":    says(rawFrame(wire.KindDone, 3, "abc")),
		"garbage in failure": says(rawFrame(wire.KindFailure, 3, "abc")),
		"data first":         says(dataFrame(10)),
		"an abort":           says(wire.Frame(wire.KindAbort)),
		"text":               says([]byte("HTTP/1.1 200 OK\r\n\r\n")),
		"a hard link":        says(wire.Info{Type: wire.TypeLink, Link: "x"}.Frame()),
	} {
		for op, request := range requests {
			c := hostile(t, DefaultLimits(), act)
			if err := request(testContext(t), c); sbxerr.Of(err) != sbxerr.Init {
				t.Errorf("%s answered with %s: %v", op, name, err)
			}
			if !c.Spent() {
				t.Errorf("%s answered with %s: the client goes on", op, name)
			}
			refused(t, "the next one", request(testContext(t), c), sbxerr.Init, "closed before")
		}
	}
}

func TestLies(t *testing.T) {
	event := func(path string) []byte { return wire.Event{Type: wire.EventWrite, Path: path}.Frame() }
	entry := func(path string) []byte { return wire.Info{Type: wire.TypeFile, Path: path}.Frame() }
	ready := wire.Frame(wire.KindReady)
	for name, tc := range map[string]struct {
		op  string
		act func(net.Conn)
	}{
		"list climbs":         {"list", says(entry("../x"), aDone)},
		"list is absolute":    {"list", says(entry("/etc"), aDone)},
		"list is too deep":    {"list", says(entry("a/b"), aDone)},
		"list without a name": {"list", says(entry(""), aDone)},
		"read sends more":     {"read", says(aFile, dataFrame(11), aDone)},
		"read without file":   {"read", says(aDone)},
		"event climbs":        {"watch", says(ready, event("a/../../x"))},
		"event before ready":  {"watch", says(event("a"))},
		"watch that is done":  {"watch", says(ready, aDone)},
		"copy without top":    {"out", says(aFile, dataFrame(3), aDone)},
		"copy of nothing":     {"out", says(aDone)},
		"copy is short":       {"out", says(aDir, aFile, dataFrame(2), aDone)},
		"copy is long":        {"out", says(aDir, aFile, dataFrame(4), aDone)},
		"copy climbs":         {"out", says(aDir, entry("../x"), aDone)},
		"copy through a link": {"out", says(aDir, wire.Info{Type: wire.TypeSymlink, Path: "a", Link: "b"}.Frame(), entry("a/x"), aDone)},
		"data for nothing":    {"out", says(aDir, dataFrame(4), aDone)},
		"counts made up":      {"in", says(wire.Done{Entries: 5}.Frame())},
		"written too early":   {"write", says(aDone)},
	} {
		err := requests[tc.op](testContext(t), hostile(t, DefaultLimits(), tc.act))
		if sbxerr.Of(err) != sbxerr.Init {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// flood sends f again and again until nobody listens.
func flood(first []byte, f []byte) func(net.Conn) {
	return func(conn net.Conn) {
		_, err := conn.Write(first)
		for err == nil {
			_, err = conn.Write(f)
		}
	}
}

func TestFloodsAreBounded(t *testing.T) {
	limits := DefaultLimits()
	limits.Bytes, limits.ListEntries = 1<<20, 1000
	for name, tc := range map[string]struct {
		op   string
		act  func(net.Conn)
		code sbxerr.Code
	}{
		"entries":            {"list", flood(nil, aFile), sbxerr.Init},
		"bytes":              {"read", flood(aFile, dataFrame(1000)), sbxerr.Init},
		"bytes in an upload": {"write", flood(nil, dataFrame(1000)), sbxerr.Init},
		"a huge file":        {"out", says(aDir, wire.Info{Type: wire.TypeFile, Path: "a", Size: 1 << 60}.Frame()), sbxerr.FileTooBig},
	} {
		if err := requests[tc.op](testContext(t), hostile(t, limits, tc.act)); sbxerr.Of(err) != tc.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A time that no answer of the API can hold is told as the nearest that one can,
// whatever the process says: older builds' pass on what a file has.
func TestTimesAreBounded(t *testing.T) {
	for sec, want := range map[int64]string{
		math.MinInt64: "0001-01-01T00:00:00Z", -1: "1969-12-31T23:59:59Z", 1 << 33: "2242-03-16T12:56:32Z", math.MaxInt64: "9999-12-31T23:59:59Z",
	} {
		i := wire.Info{Type: wire.TypeFile, Path: "a", Mtime: sec}
		found, err := hostile(t, DefaultLimits(), says(i.Frame(), aDone)).Stat(testContext(t), "/x", false)
		if got := found.ModTime.Format(time.RFC3339); err != nil || got != want {
			t.Errorf("stat: %d is told as %s, want %s, %v", sec, got, want, err)
		}
		list, _, err := hostile(t, DefaultLimits(), says(i.Frame(), aDone)).ListDir(testContext(t), "/x", 1)
		if err != nil || len(list) != 1 || list[0].ModTime.Format(time.RFC3339) != want {
			t.Errorf("list: %d is told as %+v, want %s, %v", sec, list, want, err)
		}
	}
}

// A process that says nothing is given up, and so is one that takes nothing.
func TestSilence(t *testing.T) {
	limits := DefaultLimits()
	limits.Patience, limits.Slow, limits.Undo = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	hold := make(chan struct{})
	defer close(hold)
	silent := func(net.Conn) { <-hold }
	for op, request := range requests {
		if err := request(testContext(t), hostile(t, limits, silent)); sbxerr.Of(err) != sbxerr.Deadline {
			t.Errorf("%s: %v", op, err)
		}
	}
	_, err := hostile(t, limits, silent).Write(testContext(t), "/x", nil, false, zeros{})
	refused(t, "a write that is not taken", err, sbxerr.Deadline, "does not answer")
}

// jammed is a connection that takes half of its second write in time.
type jammed struct {
	Conn
	writes int
}

func (j *jammed) Write(p []byte) (int, error) {
	if j.writes++; j.writes != 2 {
		return j.Conn.Write(p)
	}
	n, err := j.Conn.Write(p[:len(p)/2])
	return n, errors.Join(err, os.ErrDeadlineExceeded)
}

// Nothing follows half a frame: a process that goes on after all would take it for the
// other half, and wait for more.
func TestHalfAFrameIsTheLast(t *testing.T) {
	limits := DefaultLimits()
	limits.Patience = time.Hour
	c := hostile(t, limits, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	c.conn = &jammed{Conn: c.conn}
	_, err := c.Write(testContext(t), "/x", nil, false, zeros{})
	refused(t, "a write that was taken in part", err, sbxerr.Deadline, "does not answer")
}

func TestCancelWhileSilent(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	for _, op := range []string{"stat", "read", "watch", "out", "remove"} {
		asked := make(chan struct{})
		c := hostile(t, DefaultLimits(), func(net.Conn) { close(asked); <-hold })
		ctx, cancel := context.WithCancelCause(testContext(t))
		why := errors.New("the caller has left")
		go func() { <-asked; cancel(why) }()
		err := requests[op](ctx, c)
		if sbxerr.Of(err) != sbxerr.Canceled || !errors.Is(err, why) {
			t.Errorf("%s: %v", op, err)
		}
	}
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	c := hostile(t, DefaultLimits(), func(net.Conn) {})
	if _, err := c.Stat(ctx, "/", false); sbxerr.Of(err) != sbxerr.Canceled || c.Spent() {
		t.Errorf("cancelled before: %v", err)
	}
}

// No descriptor that the process sends arrives here.
func TestDescriptorsAreNotTaken(t *testing.T) {
	r, w, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := hostile(t, DefaultLimits(), func(conn net.Conn) {
		rights := syscall.UnixRights(int(w.Fd()))
		b := append(wire.Info{Type: wire.TypeFile}.Frame(), aDone...)
		if _, _, err := conn.(*net.UnixConn).WriteMsgUnix(b, rights, nil); err != nil {
			t.Error(err)
		}
		w.Close()
	})
	if _, err := c.Stat(testContext(t), "/", false); err != nil {
		t.Fatal(err)
	}
	// Were a copy of w open anywhere, r would not see the end.
	if err := r.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestFailuresHaveCodes(t *testing.T) {
	for _, tc := range []struct {
		f    wire.Failure
		code sbxerr.Code
		text string
	}{
		{wire.Failure{Errno: syscall.ENOENT, Path: "/x"}, sbxerr.FileAbsent, `stat "/x": no such file or directory`},
		{wire.Failure{Errno: syscall.EACCES}, sbxerr.FileRights, `stat "/x": permission denied`},
		{wire.Failure{Errno: syscall.EROFS}, sbxerr.FileRights, "read-only file system"},
		{wire.Failure{Errno: syscall.ENOSPC}, sbxerr.FileSpace, "no space left"},
		{wire.Failure{Errno: syscall.EDQUOT}, sbxerr.FileSpace, "quota"},
		{wire.Failure{Errno: syscall.EFBIG}, sbxerr.FileTooBig, "too large"},
		{wire.Failure{Errno: syscall.ENAMETOOLONG}, sbxerr.FilePath, "too long"},
		{wire.Failure{Errno: syscall.EIO}, sbxerr.FileFailed, "input/output error"},
		{wire.Failure{Errno: 4000}, sbxerr.FileFailed, "errno 4000"},
		{wire.Failure{Reason: wire.ReasonNotFile}, sbxerr.FileKind, "not a regular file"},
		{wire.Failure{Reason: wire.ReasonDepth}, sbxerr.FileTooBig, "200 directories"},
		{wire.Failure{Reason: wire.ReasonWatches}, sbxerr.FileTooBig, "8192"},
		{wire.Failure{Reason: wire.ReasonChanged}, sbxerr.FileFailed, "shorter"},
		{wire.Failure{Reason: wire.ReasonAborted}, sbxerr.Canceled, "given up"},
		{wire.Failure{Reason: wire.ReasonVersion}, sbxerr.Init, "another version"},
		{wire.Failure{Reason: wire.ReasonBug}, sbxerr.Init, "a fault of its own"},
	} {
		c := hostile(t, DefaultLimits(), says(tc.f.Frame()))
		_, err := c.Stat(testContext(t), "/x", false)
		refused(t, tc.text, err, tc.code, tc.text)
		if c.Spent() {
			t.Errorf("%s: a failure ends the client", tc.text)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add("out", bytes.Join([][]byte{aDir, aFile, dataFrame(3), aDone}, nil))
	f.Add("list", append(bytes.Clone(aFile), aDone...))
	f.Add("watch", wire.Frame(wire.KindReady))
	f.Fuzz(func(t *testing.T, op string, answer []byte) {
		request, ok := requests[op]
		if !ok || op == "write" || op == "in" {
			return
		}
		_ = request(testContext(t), hostile(t, DefaultLimits(), says(answer))) // ends, whatever it says
	})
}
