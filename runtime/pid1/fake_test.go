package pid1

import (
	"context"
	"errors"
	"net"
	"os"
	goruntime "runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

// soon bounds what must happen, and is never waited for in a test that passes.
const soon = 20 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}

// fakeInit is a PID 1 that does what the test says.
type fakeInit struct {
	t    testing.TB
	fd   int
	conn *initproto.Conn
	last uint32 // number that start used
}

// dialFake connects as PID 1 would and says nothing yet.
func dialFake(t testing.TB, dir string) *fakeInit {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: dir + "/" + initproto.SocketName}); err != nil {
		t.Fatal(err)
	}
	f := &fakeInit{t: t, fd: fd, conn: initproto.NewConn(fd)}
	timeout := syscall.Timeval{Sec: int64(soon / time.Second)}
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

func (f *fakeInit) close() {
	if f.fd >= 0 {
		f.conn.Close()
		f.fd = -1
	}
}

// send sends messages and bears that the daemon has hung up.
func (f *fakeInit) send(list ...initproto.Message) {
	f.t.Helper()
	for _, m := range list {
		if err := f.conn.Send(m); err != nil && err != syscall.EPIPE && err != syscall.ECONNRESET {
			f.t.Errorf("send %#v: %v", m, err)
		}
	}
}

// recv receives one message and closes what came with it.
func (f *fakeInit) recv() initproto.Message {
	f.t.Helper()
	m, fds, err := f.conn.Recv()
	if err != nil {
		f.t.Errorf("receive: %v", err)
	}
	initproto.CloseFDs(fds)
	return m
}

// raw sends a packet that need not be a message.
func (f *fakeInit) raw(b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(f.fd, b, oob, nil, unix.MSG_NOSIGNAL)
}

// tempDir is short enough for a socket's address, which t.TempDir may not be.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pid1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func listenIn(t testing.TB, dir string) *Listener {
	t.Helper()
	l, err := Listen(dir, os.Getuid(), os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// connect returns a client and the fake PID 1 that it talks to.
func connect(t testing.TB) (*Client, *fakeInit) {
	t.Helper()
	dir := tempDir(t)
	l := listenIn(t, dir)
	f := dialFake(t, dir)
	f.send(initproto.Hello{Version: initproto.Version, PID: 1})
	c, held, err := l.Accept(testContext(t), os.Getpid(), Options{OrphanGrace: time.Second})
	if err != nil || held != nil {
		t.Fatal(held, err)
	}
	t.Cleanup(func() { c.Close() })
	if m := f.recv(); m != (initproto.Welcome{OrphanGraceMillis: 1000}) {
		t.Errorf("PID 1 got %#v", m)
	}
	return c, f
}

// connectShort is connect with a client that waits wait, over a socket pair.
func connectShort(t testing.TB, wait time.Duration) (*Client, *fakeInit) {
	t.Helper()
	s, f := socketPair(t)
	s.timeout = wait
	c := newClient(s, patience{answer: wait, drain: wait}, nil)
	t.Cleanup(func() { c.Close() })
	return c, f
}

// socketPair returns a transport whose peer may send descriptors, as on a
// kernel without SO_PASSRIGHTS.
func socketPair(t testing.TB) (*socket, *fakeInit) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), "daemon")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeInit{t: t, fd: fds[1], conn: initproto.NewConn(fds[1])}
	t.Cleanup(func() { f.close(); conn.Close() })
	return &socket{conn: conn.(*net.UnixConn), timeout: sendTimeout}, f
}

var numbers atomic.Uint32

// command gets a number that no other has, nor any that start uses.
func command(args ...string) Command {
	return Command{Number: 1000 + numbers.Add(1), Args: args, Cwd: "/", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Groups: groups()}
}

func groups() []uint32 {
	list, _ := os.Getgroups()
	var ids []uint32
	for _, id := range list {
		ids = append(ids, uint32(id))
	}
	return ids
}

// start starts a command whose start f confirms with pid.
func start(t testing.TB, c *Client, f *fakeInit, pid int) (*Exec, uint32) {
	t.Helper()
	type result struct {
		e   *Exec
		err error
	}
	done := make(chan result, 1)
	cmd := command("true")
	f.last++
	cmd.Number = f.last
	go func() {
		e, err := c.Start(testContext(t), cmd)
		done <- result{e, err}
	}()
	m, _ := f.recv().(initproto.Start)
	f.send(initproto.Started{Exec: m.Exec, PID: pid})
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.e, m.Exec
}

func wantEnd(t testing.TB, c *Client, want error) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(soon):
		t.Fatal("the connection goes on")
	}
	wantInit(t, c.Err(), want)
}

func wantInit(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || sbxerr.Of(err) != sbxerr.Init {
		t.Errorf("error is %v, want %v under %s", err, want, sbxerr.Init)
	}
}

func wantCode(t testing.TB, err error, want sbxerr.Code) {
	t.Helper()
	if sbxerr.Of(err) != want {
		t.Errorf("error is %v, want code %s", err, want)
	}
}

// settled waits until n is what count returns: goroutines and descriptors go a
// moment after what they served.
func settled(t testing.TB, what string, n int, count func() int) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for got := count(); got > n; got = count() {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d %s, %d before\n%s", got, what, n, buf[:goruntime.Stack(buf, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

func openFDs() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}
