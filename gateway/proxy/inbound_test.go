package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
)

// entrance is an Inbound before an echo server.
type entrance struct {
	t       *testing.T
	address string // of its door
	server  net.Listener
	needs   chan struct{}
	stock   *Stock
	in      *Inbound
	records chan attempt.Arrival
	stop    func()
}

func enter(t *testing.T, change func(*Limits)) *entrance {
	t.Helper()
	return enterBefore(t, func(c net.Conn) { _, _ = io.Copy(c, c) }, change)
}

// enterBefore is an Inbound before a server that runs handle for each connection.
func enterBefore(t *testing.T, handle func(net.Conn), change func(*Limits)) *entrance {
	t.Helper()
	return enterAt(t, "127.0.0.1:0", handle, change)
}

// enterAt is an Inbound before a server on the address at.
func enterAt(t *testing.T, at string, handle func(net.Conn), change func(*Limits)) *entrance {
	t.Helper()
	server, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { handle(c); _ = c.Close() }()
		}
	}()
	e := &entrance{t: t, server: server, needs: make(chan struct{}, 8), records: make(chan attempt.Arrival, 256)}
	e.stock = NewStock(func() { e.needs <- struct{}{} })
	limits := DefaultLimits
	if change != nil {
		change(&limits)
	}
	in, err := NewInbound(InboundConfig{Sandbox: "box", Stock: e.stock, Record: func(a attempt.Arrival) { e.records <- a }, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	e.in = in
	door, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.address = door.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	port := uint16(server.Addr().(*net.TCPAddr).Port)
	go func() { served <- in.Serve(ctx, []Door{{Listener: door.(*net.TCPListener), Port: port}}) }()
	e.stop = func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
	t.Cleanup(func() {
		if server.Close(); ctx.Err() == nil {
			e.stop()
		}
	})
	return e
}

// supply waits until sockets are needed, and gives n.
func (e *entrance) supply(n int) {
	e.t.Helper()
	select {
	case <-e.needs:
	case <-time.After(5 * time.Second):
		e.t.Fatal("no sockets are asked for")
	}
	if err := e.stock.Put(sockets(e.t, unix.AF_INET6, n)); err != nil {
		e.t.Fatal(err)
	}
}

func sockets(t *testing.T, family, n int) []*os.File {
	t.Helper()
	var files []*os.File
	for range n {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, os.NewFile(uintptr(fd), "inside"))
	}
	return files
}

func (e *entrance) dial() *net.TCPConn {
	e.t.Helper()
	c, err := net.Dial("tcp4", e.address)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		e.t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// held is a connection that goes on: a byte has come back through it.
func (e *entrance) held() *net.TCPConn {
	e.t.Helper()
	c := e.dial()
	if _, err := io.WriteString(c, "x"); err != nil {
		e.t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		e.t.Fatal(err)
	}
	return c
}

// rejected expects that a connection is reset, be it before it is known to be made.
func (e *entrance) rejected(what string) {
	e.t.Helper()
	c, err := net.Dial("tcp4", e.address)
	if err != nil {
		return
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return // it is reset already
	}
	if _, err := io.ReadAll(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		e.t.Errorf("%s: not reset: %v", what, err)
	}
}

func (e *entrance) record() attempt.Arrival {
	e.t.Helper()
	select {
	case a := <-e.records:
		return a
	case <-time.After(5 * time.Second):
		e.t.Fatal("no record")
		return attempt.Arrival{}
	}
}

func TestInboundCarries(t *testing.T) {
	e := enter(t, nil)
	e.supply(attempt.Batch)
	c := e.dial()
	if got, err := talk(c, "hello"); got != "hello" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	a := e.record()
	if a.Verdict != attempt.Allowed || a.Sandbox != "box" || a.Peer.String() != c.LocalAddr().String() || a.Port == 0 || a.Sent != 5 || a.Received != 5 ||
		a.Code != "" || a.Begun.IsZero() || a.Duration <= 0 {
		t.Errorf("%+v", a)
	}
	many := strings.Repeat("0123456789abcdef", 1<<18) // enough to be spliced
	if got, err := talk(e.dial(), many); got != many || err != nil {
		t.Errorf("%d bytes of %d, %v", len(got), len(many), err)
	}
}

// A server on ::1 alone is reached with one more socket, and 127.0.0.1 comes first.
func TestInboundCarriesToIPv6(t *testing.T) {
	e := enterAt(t, "[::1]:0", func(c net.Conn) { _, _ = io.WriteString(c, "six") }, nil)
	e.supply(attempt.Batch)
	if got, err := talk(e.dial(), ""); got != "six" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if a := e.record(); a.Verdict != attempt.Allowed || a.Sent != 3 {
		t.Errorf("%+v", a)
	}
	four, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(e.server.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	defer four.Close()
	go func() {
		if c, err := four.Accept(); err == nil {
			_, _ = io.WriteString(c, "four")
			_ = c.Close()
		}
	}()
	if got, err := talk(e.dial(), ""); got != "four" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
}

// On a host without IPv6 the sockets are of IPv4, and the refusal there is what is told.
func TestInboundWithoutIPv6(t *testing.T) {
	e := enter(t, nil)
	<-e.needs
	if err := e.stock.Put(sockets(t, unix.AF_INET, attempt.Batch)); err != nil {
		t.Fatal(err)
	}
	if got, err := talk(e.dial(), "x"); got != "x" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	e.record()
	_ = e.server.Close()
	e.rejected("with nobody inside")
	if a := e.record(); a.Verdict != attempt.Failed || !strings.Contains(a.Reason, "refused") {
		t.Errorf("%+v", a)
	}
}

// A connection waits for a socket; sockets are asked for before the last is used,
// and once.
func TestInboundWaitsForSockets(t *testing.T) {
	e := enter(t, nil)
	c := e.dial()
	time.Sleep(50 * time.Millisecond)
	e.supply(1)
	if got, err := talk(c, "late"); got != "late" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	for range 3 { // each time one socket is fewer than half of a batch
		e.supply(1)
		if got, err := talk(e.dial(), "x"); got != "x" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	e.supply(3 * attempt.Batch)
	if got, err := talk(e.dial(), "x"); got != "x" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if n := len(e.stock.sockets); n != 2*attempt.Batch-1 {
		t.Errorf("%d sockets are kept", n)
	}
	select {
	case <-e.needs:
		t.Error("more are asked for while there are enough")
	default:
	}
}

func TestInboundFails(t *testing.T) {
	e := enter(t, func(l *Limits) { l.Connect = 100 * time.Millisecond })
	e.rejected("without a socket")
	if a := e.record(); a.Verdict != attempt.Failed || a.Code != sbxerr.Gateway {
		t.Errorf("without a socket: %+v", a)
	}
	e.supply(attempt.Batch)
	if got, err := talk(e.dial(), "x"); got != "x" || err != nil {
		t.Fatalf("the control: %q, %v", got, err)
	}
	e.record()
	_ = e.server.Close()
	e.rejected("with nobody inside")
	if a := e.record(); a.Verdict != attempt.Failed || a.Code != sbxerr.EgressDial || !strings.Contains(a.Reason, "refused") {
		t.Errorf("with nobody inside: %+v", a)
	}
}

func TestInboundLimits(t *testing.T) {
	e := enter(t, func(l *Limits) { l.Connections, l.Idle = 1, 300*time.Millisecond })
	e.supply(attempt.Batch)
	held := e.held()
	e.rejected("one too many")
	if _, err := held.Read(make([]byte, 1)); err == nil {
		t.Error("one that is idle goes on")
	}
	if a := e.record(); a.Verdict != attempt.Idle || a.Skipped != 1 || a.Sent != 1 {
		t.Errorf("%+v", a)
	}
	e = enter(t, func(l *Limits) { l.Connections = 1 })
	e.supply(attempt.Batch)
	e.held()
	e.rejected("one too many beside one that goes on")
	if a := e.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.EgressBusy || !a.Peer.IsValid() || a.Port == 0 || a.Skipped != 0 {
		t.Errorf("one too many: %+v", a)
	}
}

// Other clients are let in at once, and what others have open is cut.
func TestInboundAdmits(t *testing.T) {
	e := enter(t, nil)
	e.supply(attempt.Batch)
	held := e.held()
	e.in.Admit([][]netip.Prefix{{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8")}})
	if got, err := talk(held, "goes on"); got != "goes on" || err != nil {
		t.Errorf("a client that stays one: %q, %v", got, err)
	}
	e.record()
	held = e.held()
	e.in.Admit([][]netip.Prefix{{netip.MustParsePrefix("10.0.0.0/8")}})
	if _, err := held.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection goes on: %v", err)
	}
	if a := e.record(); a.Verdict != attempt.Cut || a.Code != sbxerr.PortClient || a.Sent != 1 {
		t.Errorf("%+v", a)
	}
	e.rejected("not for this client")
	e.in.Admit([][]netip.Prefix{nil})
	if a := e.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.PortClient {
		t.Errorf("%+v", a)
	}
	if got, err := talk(e.dial(), "any"); got != "any" || err != nil {
		t.Errorf("any client: %q, %v", got, err)
	}
}

// What did not come about before the end is no connection.
func TestInboundEndsBefore(t *testing.T) {
	e := enter(t, nil)
	e.dial()
	<-e.needs
	for deadline := time.Now().Add(5 * time.Second); e.arrivals() == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // nothing announces an arrival
	}
	e.stop()
	if a := e.record(); a.Verdict != attempt.Failed {
		t.Errorf("%+v", a)
	}
}

func (e *entrance) arrivals() int {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	return len(e.in.arrived)
}

// The end of the sandbox ends its connections and leaves no socket.
func TestInboundEnds(t *testing.T) {
	e := enter(t, nil)
	e.supply(attempt.Batch)
	held := e.held()
	e.stop()
	if _, err := held.Read(make([]byte, 1)); err == nil {
		t.Error("a connection goes on")
	}
	if a := e.record(); a.Verdict != attempt.Stopped || a.Reason == "" {
		t.Errorf("%+v", a)
	}
	if _, err := net.Dial("tcp4", e.address); err == nil {
		t.Error("it listens")
	}
	late := sockets(t, unix.AF_INET6, 1)
	if err := e.stock.Put(late); err != nil || late[0].Close() == nil {
		t.Errorf("a socket that comes later stays open: %v", err)
	}
}
