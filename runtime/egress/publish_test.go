package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/control"
)

const insidePort = 8080

// entrance is a sandbox with an echo server inside and a listener outside.
type entrance struct {
	Published
	address string
	batches *atomic.Int64
}

// entrance makes a namespace, in which whoever connects to insidePort hears what it
// says, and a listener on the host.
func newEntrance(t *testing.T, id string) entrance {
	t.Helper()
	b, sockets := newBox(t)
	_ = sockets.Close() // nothing gets out
	var server net.Listener
	var err error
	b.Do(func() { server, err = net.Listen("tcp4", "127.0.0.1:8080") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	door, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := door.(*net.TCPListener).File()
	if err := errors.Join(err, door.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	e := entrance{address: door.Addr().String(), batches: new(atomic.Int64)}
	e.Published = Published{ID: id, Ports: []uint16{insidePort}, Listeners: []*os.File{file}, Sockets: func(n int) (list []*os.File, err error) {
		e.batches.Add(1)
		b.Do(func() { list, err = openSockets(n) })
		return list, err
	}}
	return e
}

func openSockets(n int) ([]*os.File, error) {
	var list []*os.File
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return list, err
		}
		list = append(list, os.NewFile(uintptr(fd), "inside"))
	}
	return list, nil
}

// publish lets others in to e, until its namespace goes.
func (w *world) publish(t *testing.T, e entrance) {
	t.Helper()
	if err := w.Publish(t.Context(), e.Published); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Remove(context.Background(), e.ID); err != nil {
			t.Error(err)
		}
	})
}

// visit connects from outside and has a word echoed.
func (e entrance) visit(t *testing.T) (net.Conn, error) {
	t.Helper()
	c, err := net.DialTimeout("tcp4", e.address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, echo(c)
}

func TestPublish(t *testing.T) {
	w := newWorld(t, usual)
	e := newEntrance(t, "one")
	if c, err := net.Dial("tcp4", "127.0.0.1:8080"); err == nil {
		_ = c.Close()
		t.Fatal("the control: what listens inside is reached without being published")
	}
	w.publish(t, e)
	if err := w.Publish(t.Context(), e.Published); sbxerr.Of(err) != sbxerr.Exists {
		t.Errorf("twice: %v", err)
	}
	const visits = 3 * attempt.Batch
	for range visits {
		c, err := e.visit(t)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	if n := e.batches.Load(); n < visits/attempt.Batch || n > visits/attempt.Batch+2 {
		t.Errorf("%d batches of sockets for %d connections", n, visits)
	}
	until(t, "the records", func() bool { return len(w.arrivals()) == visits })
	if a := w.arrivals()[0]; a.Sandbox != "one" || a.Port != insidePort || a.Verdict != attempt.Allowed || a.Sent != 5 || a.Received != 5 || !a.Peer.IsValid() {
		t.Errorf("%+v", a)
	}
	held, err := e.visit(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Remove(t.Context(), "one"), w.Remove(t.Context(), "one")); err != nil {
		t.Error(err)
	}
	closed(t, held)
	before := e.batches.Load()
	if c, err := net.Dial("tcp4", e.address); err == nil { // the listener is this test's
		if err := echo(c); err == nil {
			t.Error("it is carried after the removal")
		}
		_ = c.Close()
	}
	if e.batches.Load() != before {
		t.Error("sockets are opened after the removal")
	}
}

// Other clients are let in at once, also by a gateway that is started later.
func TestAdmit(t *testing.T) {
	w := newWorld(t, fast)
	e := newEntrance(t, "one")
	w.publish(t, e)
	nobody := [][]netip.Prefix{{netip.MustParsePrefix("10.0.0.0/8")}}
	if err := w.Admit(t.Context(), "two", nobody); sbxerr.Of(err) != sbxerr.NotFound {
		t.Errorf("a sandbox that is not published: %v", err)
	}
	if err := w.Admit(t.Context(), "one", nil); sbxerr.Of(err) != sbxerr.NotFound {
		t.Errorf("no port: %v", err)
	}
	held, err := e.visit(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Admit(t.Context(), "one", nobody); err != nil {
		t.Fatal(err)
	}
	closed(t, held)
	if _, err := e.visit(t); err == nil {
		t.Error("it is let in")
	}
	if err := syscall.Kill(w.pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := e.visit(t); err == nil || w.Status().Starts != 2 {
		t.Errorf("it is let in by the next gateway: %v, %+v", err, w.Status())
	}
	if err := w.Admit(t.Context(), "one", [][]netip.Prefix{{netip.MustParsePrefix("127.0.0.0/8")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.visit(t); err != nil {
		t.Error(err)
	}
}

func (w *world) arrivals() []attempt.Arrival {
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	return append([]attempt.Arrival(nil), w.seen.arrivals...)
}

// TestPublishTellsOfConnections: the first one is told at once, and that there is none any more.
func TestPublishTellsOfConnections(t *testing.T) {
	w := newWorld(t, usual)
	e := newEntrance(t, "one")
	came := make(chan struct{}, 9)
	e.Published.Came = func() { came <- struct{}{} }
	w.publish(t, e)
	for range 2 {
		c, err := e.visit(t)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-came:
		case <-time.After(time.Second): // it is told in a moment, the number every two seconds
			t.Fatal("nothing is told of a connection")
		}
		if v, _ := w.View("one"); v.Counters.Inbound != 1 {
			t.Errorf("%d connections", v.Counters.Inbound)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		until(t, "no connection", func() bool {
			err := w.Refresh(t.Context(), "one")
			v, _ := w.View("one")
			return err == nil && v.Counters.Inbound == 0
		})
	}
}

// A sandbox can be both: what it sends out and what comes in go with the same
// Remove.
func TestPublishAdded(t *testing.T) {
	w := newWorld(t, usual)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	e := newEntrance(t, "one")
	w.publish(t, e)
	out, err := w.reach(t, b, "web.example")
	if err != nil {
		t.Error(err)
	}
	in, err := e.visit(t)
	if err != nil {
		t.Error(err)
	}
	if err := w.Remove(t.Context(), "one"); err != nil {
		t.Error(err)
	}
	closed(t, out)
	closed(t, in)
}

// The next gateway accepts on the same listener; who came in between is served.
func TestPublishOutlivesTheGateway(t *testing.T) {
	for _, tt := range []struct {
		name   string
		signal syscall.Signal
	}{{"killed", syscall.SIGKILL}, {"hangs", syscall.SIGSTOP}} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, fast)
			e := newEntrance(t, "one")
			w.publish(t, e)
			held, err := e.visit(t)
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(w.pid(), tt.signal); err != nil {
				t.Fatal(err)
			}
			closed(t, held)
			if _, err := e.visit(t); err != nil {
				t.Errorf("with the next one: %v", err)
			}
			if w.Status().Starts != 2 {
				t.Errorf("%+v", w.Status())
			}
		})
	}
}

// A gateway that asks and asks gets so many sockets and no more.
func TestPublishIsBounded(t *testing.T) {
	w := newWorld(t, usual)
	e := newEntrance(t, "one")
	w.publish(t, e)
	end := time.Now().Add(2 * time.Second)
	for time.Now().Before(end) {
		w.event(control.Report{Need: &control.Need{Sandbox: "one"}})
		w.event(control.Report{Need: &control.Need{Sandbox: "two"}})
	}
	if n := e.batches.Load(); n < 10 || n > batchesBurst+3*batchesPerSecond {
		t.Errorf("%d batches in two seconds", n)
	}
	if _, err := e.visit(t); err != nil {
		t.Errorf("it serves no more: %v", err)
	}
}

func TestPublishRefuses(t *testing.T) {
	w := newWorld(t, usual)
	e := newEntrance(t, "one")
	bad := e.Published
	bad.Ports = nil
	if err := w.Publish(t.Context(), bad); sbxerr.Of(err) != sbxerr.Internal {
		t.Errorf("no port: %v", err)
	}
	bad.Ports, bad.Listeners = []uint16{1024}, []*os.File{os.Stdin}
	if err := w.Publish(t.Context(), bad); err == nil || strings.Contains(err.Error(), "exists") {
		t.Errorf("no socket: %v", err)
	}
	w.publish(t, e)
	if _, err := e.visit(t); err != nil {
		t.Error(err)
	}
}
