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
	wire "github.com/caisson-run/caisson/initproto/files"
)

// Conn is the daemon's end of the connection: a *net.UnixConn.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	SyscallConn() (syscall.RawConn, error)
}

var _ Conn = (*net.UnixConn)(nil)

// Client speaks with one process. Its methods are safe for concurrent use and
// run one after the other.
//
// Their errors have the code of what is wrong with the path or the file
// (SBX-211 to SBX-219), of the end of ctx (SBX-002, SBX-003), or SBX-604 for a
// process that ended or broke the protocol. After one of the latter two the
// Client is spent.
type Client struct {
	conn   Conn
	limits Limits
	buf    []byte

	mu       sync.Mutex      // held by the request under way
	ctx      context.Context // of that request
	answered bool            // the last request has had its Done or Failure
	input    bool            // the process waits for the rest of a write or copy in
	spent    bool
	closed   sync.Once
}

// New returns a client that owns conn.
func New(conn Conn, limits Limits) *Client {
	return &Client{conn: conn, limits: limits, buf: make([]byte, wire.MaxData)}
}

// Close ends the connection, and with it the process.
func (c *Client) Close() { c.closed.Do(func() { _ = c.conn.Close() }) } // there is nothing to do about a failure

// Spent reports that the connection is of no use any more.
func (c *Client) Spent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spent
}

// alive reports whether an idle process is still there, and silent as it must be.
func (c *Client) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spent || c.conn.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && silent
}

// call sends r and lets talk hear the answer. Unless that ends in order, the
// connection is closed.
func (c *Client) call(ctx context.Context, r wire.Request, talk func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return ended(ctx, err)
	}
	if c.spent {
		return sbxerr.New(sbxerr.Init, "files.call", "the connection to the process was closed before")
	}
	c.ctx, c.answered = ctx, false
	c.input = r.Op == wire.OpWrite || r.Op == wire.OpCopyIn
	stop := context.AfterFunc(ctx, c.interrupt)
	err := c.send(r.Frame())
	if err == nil {
		err = talk()
	}
	if stop() && c.answered {
		return err
	}
	c.spent = true
	c.hangUp()
	if ctx.Err() != nil && err != nil {
		return ended(ctx, err)
	}
	return err
}

// interrupt makes whatever waits for the process return.
func (c *Client) interrupt() {
	_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // on a closed connection nothing waits
	_ = c.conn.SetWriteDeadline(time.Unix(1, 0))
}

// hangUp ends the connection. A process that is in the middle of a write or a
// copy in gets the time to undo it: it ends when it has.
func (c *Client) hangUp() {
	if c.input && c.conn.CloseWrite() == nil && c.conn.SetReadDeadline(time.Now().Add(c.limits.Undo)) == nil {
		_, _ = io.Copy(io.Discard, c.conn) // ends with the process or the grace
	}
	c.Close()
}

// ended is the error of a request whose context ended first.
func ended(ctx context.Context, err error) error {
	code := sbxerr.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = sbxerr.Deadline
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return sbxerr.Wrap(code, "files.call", fmt.Errorf("work on the sandbox's files: %w", err))
}

func (c *Client) send(frame []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.limits.Patience)); err != nil {
		return lost(err)
	}
	if err := c.ctx.Err(); err != nil { // after the deadline: interrupt must not be overwritten
		return err
	}
	if _, err := c.conn.Write(frame); err != nil {
		return lost(err)
	}
	return nil
}

// arm sets how long reading may take from now on; 0 is for ever.
func (c *Client) arm(patience time.Duration) error {
	var deadline time.Time
	if patience > 0 {
		deadline = time.Now().Add(patience)
	}
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return lost(err)
	}
	return c.ctx.Err() // after the deadline: interrupt must not be overwritten
}

// receive returns the next frame. The body is valid until the next call.
func (c *Client) receive() (wire.Kind, []byte, error) {
	var header [wire.HeaderSize]byte
	if _, err := io.ReadFull(c.conn, header[:]); err != nil {
		return 0, nil, lost(err)
	}
	kind, n, err := wire.ParseHeader(header[:])
	if err != nil {
		return 0, nil, broken(err)
	}
	if n == 0 {
		return kind, nil, nil
	}
	if err := c.arm(c.limits.Patience); err != nil {
		return 0, nil, err
	}
	if _, err := io.ReadFull(c.conn, c.buf[:n]); err != nil {
		return 0, nil, lost(err)
	}
	return kind, c.buf[:n], nil
}

// answer returns the next frame of an answer. A Failure becomes an error.
func (c *Client) answer(patience time.Duration, what subject) (wire.Kind, []byte, error) {
	if err := c.arm(patience); err != nil {
		return 0, nil, err
	}
	return c.hear(what)
}

func (c *Client) hear(what subject) (wire.Kind, []byte, error) {
	kind, body, err := c.receive()
	if err != nil || kind != wire.KindFailure {
		return kind, body, err
	}
	f, err := wire.DecodeFailure(body)
	if err != nil {
		return 0, nil, broken(err)
	}
	c.answered = true
	return 0, nil, what.failure(f)
}

// done reads a Done that must come now.
func (c *Client) done(patience time.Duration, what subject) error {
	kind, body, err := c.answer(patience, what)
	if err != nil {
		return err
	}
	_, err = c.doneOf(kind, body)
	return err
}

func (c *Client) doneOf(kind wire.Kind, body []byte) (wire.Done, error) {
	if kind != wire.KindDone {
		return wire.Done{}, unexpected(kind)
	}
	d, err := wire.DecodeDone(body)
	if err != nil {
		return wire.Done{}, broken(err)
	}
	c.answered = true
	return d, nil
}

// entry reads an Entry that must come now.
func (c *Client) entry(patience time.Duration, what subject) (wire.Info, error) {
	kind, body, err := c.answer(patience, what)
	if err != nil {
		return wire.Info{}, err
	}
	return entryOf(kind, body)
}

func entryOf(kind wire.Kind, body []byte) (wire.Info, error) {
	if kind != wire.KindEntry {
		return wire.Info{}, unexpected(kind)
	}
	i, err := wire.DecodeInfo(body)
	if err == nil && i.Type == wire.TypeLink {
		err = errors.New("an answer holds a hard link")
	}
	if err != nil {
		return wire.Info{}, broken(err)
	}
	return i, nil
}

func lost(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return sbxerr.New(sbxerr.Deadline, "files.receive", "the process that works on the sandbox's files does not answer")
	}
	return sbxerr.Wrap(sbxerr.Init, "files.receive", fmt.Errorf("the process that works on the sandbox's files ended: %w", err))
}

func broken(err error) error {
	return sbxerr.Wrap(sbxerr.Init, "files.receive", fmt.Errorf("the process that works on the sandbox's files broke its protocol: %w", err))
}

func unexpected(kind wire.Kind) error { return broken(fmt.Errorf("unexpected frame %d", kind)) }

// infoOf is i as callers see it, at path. DecodeInfo has bounded all but the time,
// which no call of the API could tell otherwise.
func infoOf(i wire.Info, path string) Info {
	return Info{
		Path: path, Type: i.Type.String(), Size: i.Size, Mode: i.Mode, UID: i.UID, GID: i.GID,
		ModTime: time.Unix(wire.BoundTime(i.Mtime), int64(i.Nanos)).UTC(), Link: i.Link,
	}
}
