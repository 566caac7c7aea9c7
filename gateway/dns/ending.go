package dns

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/caisson-run/caisson/gateway/limits"
)

// ending is a listener whose connections are over when ctx is, and when an answer is not
// taken in time: the library would wait for a client that reads none. One that finds no
// place is reset.
type ending struct {
	net.Listener
	ctx  context.Context
	part *limits.Share
	full func() // is told of each that finds no place
}

// Accept implements net.Listener.
func (l ending) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.part.Acquire() == nil {
			return ended{c, context.AfterFunc(l.ctx, func() { _ = c.Close() }), sync.OnceFunc(l.part.Release)}, nil
		}
		l.full()
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

type ended struct {
	net.Conn
	forget func() bool
	leave  func() // for the first Close
}

// Write implements net.Conn.
func (c ended) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// Close implements net.Conn.
func (c ended) Close() error {
	c.forget()
	defer c.leave()
	return c.Conn.Close()
}
