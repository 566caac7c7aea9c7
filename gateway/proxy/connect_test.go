package proxy

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/gateway/attempt"
)

// TestInboundWaitsForTheServer: connections that come at once to a server with room for
// two wait until it has accepted those before them, and all are served.
func TestInboundWaitsForTheServer(t *testing.T) {
	e := enterAt(t, "127.0.0.1:0", nil, nil)
	_ = e.server.Close() // another one takes its port, which accepts nothing yet
	slow, err := net.Listen("tcp", e.server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	raw, err := slow.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 1) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	const many = 100
	go func() {
		for range e.needs {
			if err := e.stock.Put(sockets(t, unix.AF_INET, attempt.Batch)); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() { e.stop(); close(e.needs) })
	var clients []*net.TCPConn
	for range many {
		clients = append(clients, e.dial())
	}
	for waiting := 0; waiting < many; { // the gateway tells nobody that it accepted
		e.in.mu.Lock()
		waiting = len(e.in.arrived)
		e.in.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	go func() {
		for {
			c, err := slow.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			if got, err := talk(c, "x"); got != "x" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
}
