package pid1

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/initproto"
)

// adoption is the adopting of a fake PID 1 that said it holds n commands.
type adoption struct {
	t    *testing.T
	f    *fakeInit
	done chan error
	c    *Client
	held []Held
}

func beginAdoption(t *testing.T, n int, o Options) *adoption {
	t.Helper()
	dir := tempDir(t)
	l := listenIn(t, dir)
	a := &adoption{t: t, f: dialFake(t, dir), done: make(chan error, 1)}
	a.f.send(initproto.Hello{Version: initproto.Version, PID: 1, Held: n})
	go func() {
		var err error
		a.c, a.held, err = l.Accept(testContext(t), os.Getpid(), o)
		a.done <- err
	}()
	return a
}

// asked awaits the request for what is held.
func (a *adoption) asked() *adoption {
	a.t.Helper()
	if m := a.f.recv(); m != (initproto.Adopt{}) {
		a.t.Fatalf("PID 1 got %#v", m)
	}
	return a
}

func (a *adoption) send(m initproto.Message, fds ...int) {
	a.t.Helper()
	if err := a.f.raw(initproto.Encode(m), fds...); err != nil {
		a.t.Errorf("send %#v: %v", m, err)
	}
}

// pipeFDs returns both ends of a pipe.
func pipeFDs(t *testing.T) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
	return p[0], p[1]
}

func openFD(t *testing.T, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// First that the probe works: what is right is adopted.
func TestAdoptTakesPipes(t *testing.T) {
	a := beginAdoption(t, 3, Options{OrphanGrace: time.Minute}).asked()
	inR, inW := pipeFDs(t)
	outR, outW := pipeFDs(t)
	errR, _ := pipeFDs(t)
	a.send(initproto.Held{Exec: 1, PID: 7})
	a.send(initproto.Held{Exec: 5, PID: 7, Stdio: initproto.Stdin | initproto.Stdout | initproto.Stderr}, inW, outR, errR)
	a.send(initproto.Held{Exec: 6, PID: 8, Stdio: initproto.Stderr}, errR)
	if m := a.f.recv(); m != (initproto.Welcome{OrphanGraceMillis: 60_000}) {
		t.Errorf("PID 1 got %#v", m)
	}
	if err := <-a.done; err != nil {
		t.Fatal(err)
	}
	defer a.c.Close()
	defer closeHeld(a.held)
	if len(a.held) != 3 || a.held[0].Stdin != nil || a.held[1].Exec.Number() != 5 || a.held[1].Exec.PID != 7 || a.held[2].Stdout != nil {
		t.Fatalf("held are %+v", a.held)
	}
	if _, err := a.held[1].Stdin.WriteString("in"); err != nil {
		t.Error(err)
	}
	buf := make([]byte, 8)
	if n, err := unix.Read(inR, buf); string(buf[:max(n, 0)]) != "in" {
		t.Errorf("stdin carries %q, %v", buf[:max(n, 0)], err)
	}
	if _, err := unix.Write(outW, []byte("out")); err != nil {
		t.Fatal(err)
	}
	if n, err := a.held[1].Stdout.Read(buf); string(buf[:n]) != "out" {
		t.Errorf("stdout carries %q, %v", buf[:n], err)
	}
	// A PID 1 that makes its own blocking does not make ours.
	if err := unix.SetNonblock(outR, false); err != nil {
		t.Fatal(err)
	}
	if err := a.held[1].Stdout.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.held[1].Stdout.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read without data: %v", err)
	}
	a.f.send(initproto.Exited{Exec: 5, Code: 3}, initproto.Exited{Exec: 1})
	if exit, err := a.held[1].Exec.Wait(testContext(t)); err != nil || exit.Code != 3 {
		t.Errorf("%+v, %v", exit, err)
	}
	// An adopted command may have ended long ago, and its pid be another's.
	a.f.last = 100
	start(t, a.c, a.f, 8)
	wantRightsRefused(t, a)
}

func wantRightsRefused(t *testing.T, a *adoption) {
	t.Helper()
	r, _ := pipeFDs(t)
	err := a.f.raw(initproto.Encode(initproto.Held{Exec: 9, PID: 9, Stdio: initproto.Stdout}), r)
	if kernelRefusesRights(t) {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("descriptors after the adoption: %v", err)
		}
		return
	}
	wantEnd(t, a.c, ErrProtocol)
}

func TestAdoptRefusesOtherDescriptors(t *testing.T) {
	const stdin, stdout = initproto.Stdin, initproto.Stdout
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range []int{pair[0], pair[1], event, mem} {
			unix.Close(fd)
		}
	})
	r, w := pipeFDs(t)
	path := openFD(t, "/proc/self/fd/"+strconv.Itoa(r), unix.O_PATH)
	both := openFD(t, "/proc/self/fd/"+strconv.Itoa(r), unix.O_RDWR)
	for name, tc := range map[string]struct {
		stdio initproto.Stdio
		fds   []int
	}{
		"device":                  {stdout, []int{openFD(t, "/dev/null", unix.O_RDONLY)}},
		"file":                    {stdin, []int{openFD(t, filepath.Join(dir, "file"), unix.O_CREAT|unix.O_WRONLY)}},
		"directory":               {stdout, []int{openFD(t, dir, unix.O_RDONLY)}},
		"named pipe":              {stdout, []int{openFD(t, fifo, unix.O_RDONLY|unix.O_NONBLOCK)}},
		"socket":                  {stdout, []int{pair[0]}},
		"eventfd":                 {stdout, []int{event}},
		"memfd":                   {stdout, []int{mem}},
		"pipe opened as a path":   {stdout, []int{path}},
		"pipe opened for both":    {stdout, []int{both}},
		"pipe for both, as stdin": {stdin, []int{both}},
		"write end as stdout":     {stdout, []int{w}},
		"read end as stdin":       {stdin, []int{r}},
		"second is wrong":         {stdin | stdout, []int{w, w}},
		"none":                    {stdout, nil},
		"one too few":             {stdin | stdout, []int{w}},
		"one too many":            {stdout, []int{r, r}},
		"without a stream":        {0, []int{r}},
		"more than a message has": {stdin | stdout, []int{w, r, r, r}},
		"many":                    {stdout, manyOf(r, 250)},
	} {
		t.Run(name, func(t *testing.T) {
			a := beginAdoption(t, 2, Options{}).asked()
			before := openFDs()
			a.send(initproto.Held{Exec: 1, PID: 2, Stdio: stdout}, r) // this one is right
			a.send(initproto.Held{Exec: 2, PID: 3, Stdio: tc.stdio}, tc.fds...)
			wantInit(t, <-a.done, ErrProtocol)
			if a.c != nil || a.held != nil {
				t.Errorf("Accept = %v, %v", a.c, a.held)
			}
			settled(t, "descriptors", before, openFDs)
			if _, _, err := a.f.conn.Recv(); err != initproto.ErrClosed {
				t.Errorf("PID 1 sees %v", err)
			}
		})
	}
}

func manyOf(fd, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = fd
	}
	return list
}

func TestAdoptRefusesLies(t *testing.T) {
	for name, list := range map[string][]initproto.Message{
		"number zero":        {initproto.Held{Exec: 0, PID: 2}},
		"number again":       {initproto.Held{Exec: 1, PID: 2}, initproto.Held{Exec: 1, PID: 2}},
		"numbers descending": {initproto.Held{Exec: 2, PID: 2}, initproto.Held{Exec: 1, PID: 3}},
		"its own pid":        {initproto.Held{Exec: 1, PID: 1}},
		"another message":    {initproto.Exited{Exec: 1}},
		"second hello":       {initproto.Hello{Version: initproto.Version, PID: 1}},
		"more than it said":  {initproto.Held{Exec: 1, PID: 2}, initproto.Held{Exec: 2, PID: 3}, initproto.Held{Exec: 3, PID: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			a := beginAdoption(t, 2, Options{}).asked()
			a.f.send(list...)
			err := <-a.done
			if name != "more than it said" {
				wantInit(t, err, ErrProtocol)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer a.c.Close()
			wantEnd(t, a.c, ErrProtocol)
		})
	}
}

func TestAdoptIsBounded(t *testing.T) {
	for n, o := range map[int]Options{initproto.MaxHeld + 1: {}, 4: {MaxHeld: 3}} {
		a := beginAdoption(t, n, o)
		wantInit(t, <-a.done, ErrProtocol)
	}
	for n, o := range map[int]Options{initproto.MaxHeld: {}, 3: {MaxHeld: 3}} {
		a := beginAdoption(t, n, o).asked()
		for i := range n {
			a.f.send(initproto.Held{Exec: uint32(i + 1), PID: 2})
		}
		if err := <-a.done; err != nil || len(a.held) != n {
			t.Errorf("%d adopted, %v; want %d", len(a.held), err, n)
		}
		a.c.Close()
	}
}

func TestAdoptOfOneThatGoesAway(t *testing.T) {
	a := beginAdoption(t, 2, Options{}).asked()
	r, _ := pipeFDs(t)
	before := openFDs()
	a.send(initproto.Held{Exec: 1, PID: 2, Stdio: initproto.Stdout}, r)
	a.f.close()
	wantInit(t, <-a.done, io.EOF)
	settled(t, "descriptors", before-2, openFDs) // both ends of the connection
}

// One that stops in the midst of it is waited for as long as the caller says.
func TestAdoptOfOneThatStops(t *testing.T) {
	dir := tempDir(t)
	l := listenIn(t, dir)
	f := dialFake(t, dir)
	f.send(initproto.Hello{Version: initproto.Version, PID: 1, Held: 2})
	f.send(initproto.Held{Exec: 1, PID: 2})
	before := openFDs()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := l.Accept(ctx, os.Getpid(), Options{})
	wantInit(t, err, context.DeadlineExceeded)
	settled(t, "descriptors", before, openFDs)
}

// Descriptors that come before they are asked for are refused by the kernel,
// or end the connection.
func TestDescriptorsBeforeAdopt(t *testing.T) {
	dir := tempDir(t)
	l := listenIn(t, dir)
	f := dialFake(t, dir)
	r, _ := pipeFDs(t)
	err := f.raw(initproto.Encode(initproto.Hello{Version: initproto.Version, PID: 1, Held: 1}), r)
	if kernelRefusesRights(t) {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("descriptors before the adoption: %v", err)
		}
		return
	}
	_, _, err = l.Accept(testContext(t), os.Getpid(), Options{})
	wantInit(t, err, ErrProtocol)
}

// An adopted command is in the state that it was adopted in.
func TestAdoptedCommandsLies(t *testing.T) {
	for name, list := range map[string][]initproto.Message{
		"started":     {initproto.Started{Exec: 1, PID: 2}},
		"failed":      {initproto.Failed{Exec: 1, Stage: initproto.StageExec, Errno: 2}},
		"placed":      {initproto.Placed{Exec: 1, PID: 2}},
		"held again":  {initproto.Held{Exec: 1, PID: 2}},
		"second exit": {initproto.Exited{Exec: 1}, initproto.Exited{Exec: 1}},
		"another":     {initproto.Exited{Exec: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			a := beginAdoption(t, 1, Options{}).asked()
			a.f.send(initproto.Held{Exec: 1, PID: 2})
			if err := <-a.done; err != nil {
				t.Fatal(err)
			}
			defer a.c.Close()
			a.f.send(list...)
			wantEnd(t, a.c, ErrProtocol)
		})
	}
}
