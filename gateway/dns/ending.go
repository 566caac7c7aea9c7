package dns

import (
	"context"
	"net"
	"time"
)

// ending is a listener whose connections are over when ctx is, and when an answer is not
// taken in time: the library would wait for a client that reads none.
type ending struct {
	net.Listener
	ctx context.Context
}

// Accept implements net.Listener.
func (l ending) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return ended{c, context.AfterFunc(l.ctx, func() { _ = c.Close() })}, nil
}

type ended struct {
	net.Conn
	forget func() bool
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
	return c.Conn.Close()
}
