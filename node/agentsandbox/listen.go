package agentsandbox

import (
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Conn is a stream of which either side may be closed alone.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// door is a listener for connections from inside this program.
type door struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newDoor() *door {
	d := &door{conns: make(chan net.Conn), closed: make(chan struct{})}
	d.close = sync.OnceFunc(func() { close(d.closed) })
	return d
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *door) Close() error {
	d.close()
	return nil
}

// Addr implements net.Listener.
func (d *door) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// dial connects to the listener. Other than a net.Pipe, either side of the connection can be closed alone.
func (d *door) dial() (Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		end, ferr := net.FileConn(f)
		_ = f.Close() // the connection has its own
		if ferr != nil {
			err = ferr
			continue
		}
		ends[i] = end
	}
	if err == nil {
		select {
		case d.conns <- ends[1]:
			return ends[0].(*net.UnixConn), nil
		case <-d.closed:
			err = net.ErrClosed
		}
	}
	for _, end := range ends {
		if end != nil {
			_ = end.Close()
		}
	}
	return nil, err
}

// limited accepts no more connections than slots has room for.
type limited struct {
	net.Listener
	slots chan struct{}
}

// Accept implements net.Listener.
func (l limited) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &counted{Conn: c, done: sync.OnceFunc(func() { <-l.slots })}, nil
}

type counted struct {
	net.Conn
	done func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.done()
	return c.Conn.Close()
}

// guarded accepts connections of the clients that are admitted, and resets all others.
type guarded struct {
	*net.TCPListener
	mu     sync.Mutex
	admits func(netip.Addr) bool // nil: nobody
	conns  map[*held]bool
}

// held is an open connection of a guarded listener.
type held struct {
	*net.TCPConn
	from *guarded
}

func guard(l *net.TCPListener) *guarded { return &guarded{TCPListener: l, conns: map[*held]bool{}} }

// Accept implements net.Listener.
func (g *guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.AcceptTCP()
		if err != nil {
			return nil, err
		}
		h := &held{TCPConn: c, from: g}
		g.mu.Lock()
		ok := g.mayStay(h)
		if ok {
			g.conns[h] = true
		}
		g.mu.Unlock()
		if ok {
			return h, nil
		}
		h.reset()
	}
}

// admit says who may connect from now on. What is open and no longer allowed is cut.
func (g *guarded) admit(admits func(netip.Addr) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admits = admits
	for h := range g.conns {
		if !g.mayStay(h) {
			h.reset()
		}
	}
}

// mayStay holds with mu.
func (g *guarded) mayStay(h *held) bool {
	client, ok := h.RemoteAddr().(*net.TCPAddr)
	return ok && g.admits != nil && g.admits(client.AddrPort().Addr())
}

// reset ends a connection. Who reads it closes it then.
func (h *held) reset() {
	_ = h.SetLinger(0) // both are about a connection that may be over already
	_ = h.TCPConn.Close()
}

// Close implements net.Conn.
func (h *held) Close() error {
	h.from.mu.Lock()
	delete(h.from.conns, h)
	h.from.mu.Unlock()
	return h.TCPConn.Close()
}
