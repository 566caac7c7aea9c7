// Package forward carries a caller's stream to a port inside a sandbox, published or not.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// dialTimeout bounds a connection inside. One over loopback is there at once, unless nobody
// takes it from the listener's queue.
const dialTimeout = 5 * time.Second

// MaxStreams is how many streams lead to one sandbox at a time: the daemon holds their buffers.
const MaxStreams = 64

const op = "runtime.forward"

// Inside is a live sandbox as the caller names it.
type Inside struct {
	ID, Name string
	// Sockets opens TCP sockets in its namespace that are not connected and do not block.
	Sockets func(n int) ([]*os.File, error)
	// Until returns a context that ends with the sandbox, too.
	Until func(context.Context) (context.Context, context.CancelFunc)
}

// Fleet finds sandboxes.
type Fleet interface {
	// Inside finds a live sandbox that the caller of ctx may enter.
	Inside(ctx context.Context, ref string) (Inside, error)
}

// Service carries streams.
type Service struct {
	fleet Fleet

	mu   sync.Mutex
	open map[string]int // streams by sandbox
}

// New returns a service for the sandboxes of fleet.
func New(fleet Fleet) *Service { return &Service{fleet: fleet, open: map[string]int{}} }

// Forward connects to 127.0.0.1, or else ::1, inside ref, calls connected, and carries in there
// and what comes back to out. The end of in ends that direction alone. It returns when both
// directions have ended, or the sandbox has.
func (s *Service) Forward(ctx context.Context, ref string, port uint16, in io.Reader, out io.Writer, connected func() error) error {
	to, err := s.fleet.Inside(ctx, ref)
	if err != nil {
		return err
	}
	if !s.begin(to.ID) {
		return sbxerr.New(sbxerr.Busy, op, "%d streams lead to sandbox %q, which is the most", MaxStreams, to.Name)
	}
	defer s.end(to.ID)
	ctx, stop := to.Until(ctx)
	defer stop()
	conn, err := dial(to.Sockets, port)
	if err != nil {
		return refusal(to.Name, port, err)
	}
	defer conn.Close()
	if err := connected(); err != nil {
		return err
	}
	return carry(ctx, conn, in, out)
}

func (s *Service) begin(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] >= MaxStreams {
		return false
	}
	s.open[id]++
	return true
}

func (s *Service) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id]--; s.open[id] == 0 {
		delete(s.open, id)
	}
}

func refusal(name string, port uint16, err error) error {
	if errors.Is(err, unix.ECONNREFUSED) {
		return sbxerr.New(sbxerr.PortClosed, op, "nothing listens on port %d of 127.0.0.1 or ::1 in sandbox %q", port, name)
	}
	return sbxerr.Wrap(sbxerr.Network, op, fmt.Errorf("connect to port %d in sandbox %q: %w", port, name, err))
}

// dial connects to the port by IPv4, and where nothing listens there by IPv6.
func dial(sockets func(int) ([]*os.File, error), port uint16) (*net.TCPConn, error) {
	files, err := sockets(2)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range files {
			_ = f.Close() // a connection has a descriptor of its own
		}
	}()
	err = connect(files[0], addressOf(files[0], port, net.IPv4(127, 0, 0, 1)))
	if errors.Is(err, unix.ECONNREFUSED) {
		if errSix := connect(files[1], addressOf(files[1], port, net.IPv6loopback)); errSix == nil {
			return connOf(files[1])
		}
	}
	if err != nil {
		return nil, err
	}
	return connOf(files[0])
}

// addressOf is that of ip and port as a socket takes it, which on a host without IPv6 is of IPv4.
func addressOf(f *os.File, port uint16, ip net.IP) unix.Sockaddr {
	if domain, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_INET {
		return &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}
	}
	return &unix.SockaddrInet6{Port: int(port), Addr: [16]byte(ip.To16())}
}

// connect waits for at most dialTimeout.
func connect(f *os.File, to unix.Sockaddr) error {
	fd := int(f.Fd())
	if err := unix.SetNonblock(fd, true); err != nil { // Fd made it block
		return err
	}
	err := unix.Connect(fd, to)
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	for until := time.Now().Add(dialTimeout); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(time.Until(until).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.ETIMEDOUT
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}

func connOf(f *os.File) (*net.TCPConn, error) {
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// carry ends with ctx. It does not wait for a caller that sends nothing and whose server has ended.
func carry(ctx context.Context, conn *net.TCPConn, in io.Reader, out io.Writer) error {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, in)
		if err == nil {
			err = conn.CloseWrite()
		} else {
			_ = conn.SetReadDeadline(time.Unix(1, 0)) // nobody is there for what comes
		}
		sent <- err
	}()
	_, err := io.Copy(out, conn)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case failed := <-sent:
		return errors.Join(failed, err)
	default:
		return err
	}
}
