package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
	wire "github.com/caisson-run/caisson/initproto/files"
)

// keepIdle is how long a process waits for the next request.
const keepIdle = 5 * time.Second

// Session works on the files of one sandbox. A request takes the process that is kept for
// a few seconds, or starts one, and holds it to its end. Each watch and copy gets a process
// of its own. It is safe for concurrent use. Its methods are those of Client.
type Session struct {
	start  Start
	use    Use
	limits Limits
	holds  Holds
	keep   time.Duration

	mu     sync.Mutex
	idle   *process
	timer  *time.Timer // ends idle
	closed bool
}

// Holds says how many bytes the files of the sandbox can have together.
type Holds func(context.Context) int64

// NewSession returns a session that starts processes with start. All requests but
// Watch, which may go on for ever without one, are noted with use.
func NewSession(start Start, use Use, holds Holds, limits Limits) *Session {
	return &Session{start: start, use: use, holds: holds, limits: limits, keep: keepIdle}
}

// process is one process and the connection to it.
type process struct {
	*Client
	Started
}

func (p *process) end() {
	p.Close()
	p.Stop()
}

// ask makes a request. Where the process is lost with it, the error is why, if that
// is known.
func (p *process) ask(ctx context.Context, f func(*Client) error) error {
	err := f(p.Client)
	if !errors.Is(err, sbxerr.Init) {
		return err
	}
	return p.Why(ctx, err)
}

// Close ends the process that is kept. Requests under way go on; later ones
// keep none.
func (s *Session) Close() {
	s.mu.Lock()
	p := s.idle
	s.idle, s.closed = nil, true
	s.stopTimer()
	s.mu.Unlock()
	if p != nil {
		p.end()
	}
}

// stopTimer must be called with the lock held.
func (s *Session) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// take returns the kept process, if there is one that is alive.
func (s *Session) take() *process {
	s.mu.Lock()
	p := s.idle
	s.idle = nil
	s.stopTimer()
	s.mu.Unlock()
	if p != nil && !p.alive() {
		p.end()
		return nil
	}
	return p
}

// park keeps p for a while, or ends it.
func (s *Session) park(p *process) {
	if p.Spent() || !s.offer(p) {
		p.end()
	}
}

func (s *Session) offer(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.idle != nil {
		return false
	}
	s.idle = p
	s.timer = time.AfterFunc(s.keep, func() {
		if s.withdraw(p) {
			p.end()
		}
	})
	return true
}

// withdraw reports whether p was still kept.
func (s *Session) withdraw(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != p {
		return false
	}
	s.idle, s.timer = nil, nil
	return true
}

// launch starts a process.
func (s *Session) launch(ctx context.Context) (*process, error) {
	conn, inside, err := socketPair()
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, "files.launch", fmt.Errorf("make a socket pair: %w", err))
	}
	defer inside.Close()
	started, err := s.start(ctx, []string{initproto.Dir + "/" + initproto.BinaryName, wire.Mode}, inside)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &process{New(conn, s.limits), started}, nil
}

// socketPair returns the daemon's end, and the one for the process: a blocking
// descriptor.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, inside := os.NewFile(uintptr(fds[0]), "files"), os.NewFile(uintptr(fds[1]), "files")
	defer ours.Close() // FileConn makes a copy
	conn, err := net.FileConn(ours)
	if err != nil {
		inside.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), inside, nil // it is one: see Socketpair
}

// small makes a request with one end on the kept process, or on a new one that is then kept.
func (s *Session) small(ctx context.Context, f func(*Client) error) error {
	defer s.use()()
	p := s.take()
	if p == nil {
		var err error
		if p, err = s.launch(ctx); err != nil {
			return err
		}
	}
	defer s.park(p)
	return p.ask(ctx, f)
}

// stream makes a request on a process of its own.
func (s *Session) stream(ctx context.Context, f func(*Client) error) error {
	defer s.use()()
	return s.alone(ctx, f)
}

// alone is stream for what is no use of the sandbox.
func (s *Session) alone(ctx context.Context, f func(*Client) error) error {
	p, err := s.launch(ctx)
	if err != nil {
		return err
	}
	defer p.end()
	return p.ask(ctx, f)
}

// Stat is Client.Stat.
func (s *Session) Stat(ctx context.Context, path string, follow bool) (info Info, err error) {
	err = s.small(ctx, func(c *Client) (err error) { info, err = c.Stat(ctx, path, follow); return err })
	return info, err
}

// ListDir is Client.ListDir.
func (s *Session) ListDir(ctx context.Context, path string, depth uint32) (list []Info, truncated bool, err error) {
	err = s.small(ctx, func(c *Client) (err error) { list, truncated, err = c.ListDir(ctx, path, depth); return err })
	return list, truncated, err
}

// MakeDir is Client.MakeDir.
func (s *Session) MakeDir(ctx context.Context, path string, mode *uint32, parents bool) (info Info, err error) {
	err = s.small(ctx, func(c *Client) (err error) { info, err = c.MakeDir(ctx, path, mode, parents); return err })
	return info, err
}

// Move is Client.Move.
func (s *Session) Move(ctx context.Context, from, to string, replace bool) (info Info, err error) {
	err = s.small(ctx, func(c *Client) (err error) { info, err = c.Move(ctx, from, to, replace); return err })
	return info, err
}

// Remove is Client.Remove.
func (s *Session) Remove(ctx context.Context, path string, recursive bool) error {
	return s.small(ctx, func(c *Client) error { return c.Remove(ctx, path, recursive) })
}

// Read is Client.Read.
func (s *Session) Read(ctx context.Context, path string, offset, length int64, info func(Info) error, w io.Writer) error {
	return s.small(ctx, func(c *Client) error { return c.Read(ctx, path, offset, length, info, w) })
}

// Write is Client.Write.
func (s *Session) Write(ctx context.Context, path string, mode *uint32, parents bool, content io.Reader) (info Info, err error) {
	err = s.small(ctx, func(c *Client) (err error) { info, err = c.Write(ctx, path, mode, parents, content); return err })
	return info, err
}

// Watch is Client.Watch.
func (s *Session) Watch(ctx context.Context, path string, recursive bool, ready func(), event func(Event) error) error {
	return s.alone(ctx, func(c *Client) error { return c.Watch(ctx, path, recursive, ready, event) })
}

// CopyOut is Client.CopyOut. Without most it is up to what the sandbox can hold.
func (s *Session) CopyOut(ctx context.Context, path string, most int64, w io.Writer) (copied Copied, err error) {
	if most <= 0 {
		most = s.holds(ctx)
	}
	err = s.stream(ctx, func(c *Client) (err error) { copied, err = c.CopyOut(ctx, path, most, w); return err })
	return copied, err
}

// CopyIn is Client.CopyIn.
func (s *Session) CopyIn(ctx context.Context, path string, r io.Reader) (copied Copied, err error) {
	err = s.stream(ctx, func(c *Client) (err error) { copied, err = c.CopyIn(ctx, path, r); return err })
	return copied, err
}
