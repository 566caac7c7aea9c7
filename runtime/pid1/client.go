package pid1

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

// patience bounds what PID 1 may take its time for.
type patience struct {
	// answer is for starting a command or delivering a signal: a matter of
	// milliseconds, unless the sandbox has next to no CPU time.
	answer time.Duration
	// drain is for reading a dead PID 1's last messages.
	drain time.Duration
}

var defaultPatience = patience{answer: 10 * time.Second, drain: time.Second}

// Client is the connection to one sandbox's PID 1.
type Client struct {
	t    transport
	wait patience
	done chan struct{} // closed once err is set
	ice  ice

	mu    sync.Mutex // guards what follows and the Execs' state
	err   error
	execs map[uint32]*Exec // those that PID 1 has in mind
}

// newClient begins with what was adopted.
func newClient(t transport, wait patience, held []Held) *Client {
	c := &Client{t: t, wait: wait, done: make(chan struct{}), execs: map[uint32]*Exec{}}
	for _, h := range held {
		h.Exec.c = c
		c.execs[h.Exec.id] = h.Exec
	}
	go c.read()
	return c
}

// Done is closed when the connection has ended. Unless this side closed it the
// sandbox is then to be ended too: nothing of it can be relied upon any more.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, nil while it has not. It matches
// ErrProtocol, ErrLost or ErrClosed.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection. PID 1 goes on for its orphan grace, waiting for
// the next Listener; without a grace it exits, and the kernel kills all in the
// sandbox. A second call does nothing.
func (c *Client) Close() error {
	return c.end(sbxerr.Wrap(sbxerr.State, "pid1.close", ErrClosed))
}

// end sets the cause if it is the first and closes the transport.
func (c *Client) end(cause error) error {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil
	}
	c.err = cause
	close(c.done)
	c.mu.Unlock()
	if err := c.t.close(); err != nil {
		return sbxerr.Wrap(sbxerr.Internal, "pid1.close", err)
	}
	return nil
}

// fail ends the connection because of err and returns what it ended with.
func (c *Client) fail(err error) error {
	if lost(err) {
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	_ = c.end(sbxerr.Wrap(sbxerr.Init, "pid1.serve", err)) // the cause is what counts
	return c.Err()
}

// read is the only goroutine of c. It ends with the connection.
func (c *Client) read() {
	for {
		m, err := c.t.recv()
		if err == nil {
			err = c.handle(m)
		}
		if err != nil {
			_ = c.fail(err)
			return
		}
	}
}

// handle applies one message of PID 1 to the state.
func (c *Client) handle(m initproto.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m := m.(type) {
	case initproto.Placed:
		return c.placed(m)
	case initproto.Started:
		return c.started(m)
	case initproto.Failed:
		return c.failed(m)
	case initproto.Exited:
		return c.exited(m)
	case initproto.Signaled:
		return c.signaled(m)
	}
	return violation("unexpected %T", m)
}

func (c *Client) placed(m initproto.Placed) error {
	e := c.execs[m.Exec]
	if e == nil || e.state != asked || !e.place {
		return violation("command %d placed unasked", m.Exec)
	}
	if err := c.claimPID(e, m.PID); err != nil {
		return err
	}
	e.state = waiting
	close(e.placed)
	return nil
}

func (c *Client) started(m initproto.Started) error {
	e := c.execs[m.Exec]
	switch {
	case e == nil, e.state == waiting, e.state == running, e.state == ended, e.state == asked && e.place:
		return violation("command %d started unasked", m.Exec)
	case e.state == proceeding && e.PID != m.PID:
		return violation("command %d was placed with the pid %d, not %d", m.Exec, e.PID, m.PID)
	}
	if err := c.claimPID(e, m.PID); err != nil {
		return err
	}
	e.state = running
	close(e.answered)
	return nil
}

// claimPID gives e a pid that no other command has. Of one that was adopted
// nothing is known but that it had its pid once.
func (c *Client) claimPID(e *Exec, pid int) error {
	for _, other := range c.execs {
		if other != e && other.PID == pid && !other.adopted && other.state != ended {
			return violation("commands %d and %d have the pid %d", other.id, e.id, pid)
		}
	}
	e.PID = pid
	return nil
}

func (c *Client) failed(m initproto.Failed) error {
	e := c.execs[m.Exec]
	if e == nil || e.state == running || e.state == ended {
		return violation("command %d failed unasked", m.Exec)
	}
	e.startErr, e.state, e.released = startError(m, e), ended, true
	c.forget(e)
	close(e.answered)
	return nil
}

func (c *Client) exited(m initproto.Exited) error {
	e := c.execs[m.Exec]
	if e == nil || e.state != running {
		return violation("command %d exited without running", m.Exec)
	}
	e.exit, e.state = exitOf(m), ended
	c.forget(e)
	close(e.exited)
	return nil
}

func (c *Client) signaled(m initproto.Signaled) error {
	e := c.execs[m.Exec]
	switch {
	case e == nil || e.unanswered == nil:
		return violation("command %d signaled unasked", m.Exec)
	case m.Count > 0 && e.scope != initproto.ScopeAll:
		return violation("%d processes of a group counted", m.Count)
	}
	e.unanswered <- m // has room for one
	e.unanswered = nil
	<-e.signals
	c.forget(e)
	return nil
}

// forget drops e when PID 1 has nothing more to say about it.
func (c *Client) forget(e *Exec) {
	if e.state == ended && e.released && e.unanswered == nil {
		delete(c.execs, e.id)
	}
}

// send sends m. A PID 1 that does not take it is of no use any more.
func (c *Client) send(m initproto.Message, with parcel) error {
	err := c.t.send(m, with)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.fail(violation("PID 1 does not read"))
	case lost(err):
		return c.lostSending(err)
	}
	return c.fail(err)
}

// lostSending leaves the end to the reader: what PID 1 said before it ended
// is still to be read, an exit among it.
func (c *Client) lostSending(err error) error {
	select {
	case <-c.done:
		return c.Err()
	case <-time.After(c.wait.drain):
		return c.fail(err)
	}
}

// exitOf translates m, whose values Decode has bounded.
func exitOf(m initproto.Exited) Exit {
	return Exit{
		Code:        int(m.Code),
		Signal:      syscall.Signal(m.Signal),
		User:        time.Duration(m.UserMicros) * time.Microsecond,
		System:      time.Duration(m.SystemMicros) * time.Microsecond,
		MaxRSSBytes: m.MaxRSSKiB << 10,
		Remaining:   m.Remaining,
	}
}
