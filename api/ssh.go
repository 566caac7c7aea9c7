package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// overSSH is h by the user's own ssh, which connects to the daemon's socket there. Who may log in
// there as a user has that user's rights.
func (h Host) overSSH(u *url.URL) (Options, error) {
	args := []string{"-T"}
	if u.User != nil {
		if _, secret := u.User.Password(); secret || !sshName().MatchString(u.User.Username()) {
			return Options{}, h.wrong("it has a password, or a strange user")
		}
		args = append(args, "-l", u.User.Username())
	}
	if u.Port() != "" {
		args = append(args, "-p", u.Port())
	}
	args = append(args, "--", u.Hostname(), "caisson", "dial-stdio")
	return Options{Dial: func(context.Context) (net.Conn, error) {
		conn, err := startSSH(args)
		if err != nil {
			return nil, &dialError{h.URL, err}
		}
		conn.host = h.URL
		return conn, nil
	}}, nil
}

// sshConn is a connection by the standard input and output of a process.
type sshConn struct {
	host string // for messages
	in   io.WriteCloser
	out  *os.File
	said *message
	done <-chan struct{} // closed when the process has ended, and all of said is there
	end  func() error

	heard bool // of the daemon, by the one who reads
}

// startSSH starts a process of its own session, so that an interrupt of the user's is for the
// command alone. Without a terminal ssh asks for passwords through SSH_ASKPASS or an agent, or fails.
func startSSH(args []string) (*sshConn, error) {
	cmd := exec.Command("ssh", args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	said := &message{}
	cmd.Stdout, cmd.Stderr = theirs, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // Read tells what ssh said of a failure
	}()
	end := sync.OnceValue(func() error {
		err := errors.Join(in.Close(), out.Close())
		select {
		case <-done:
		case <-time.After(time.Second):
			_ = cmd.Process.Kill() // it has ended, or ends now
			<-done
		}
		return err
	})
	return &sshConn{in: in, out: out, said: said, done: done, end: end}, nil
}

// Read implements [io.Reader]. Where ssh ended with a message, the error has it.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	c.heard = c.heard || n > 0
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	select {
	case <-c.done:
	case <-time.After(time.Second): // a shared connection of ssh's stays
	}
	if said := c.said.String(); said != "" {
		err = fmt.Errorf("ssh: %s", said)
	}
	if !c.heard {
		err = &dialError{c.host, err}
	}
	return n, err
}

func (c *sshConn) Write(p []byte) (int, error)        { return c.in.Write(p) }
func (c *sshConn) Close() error                       { go c.end(); return nil } // ssh may take its time
func (c *sshConn) LocalAddr() net.Addr                { return sshAddr{} }
func (c *sshConn) RemoteAddr() net.Addr               { return sshAddr{} }
func (c *sshConn) SetDeadline(t time.Time) error      { return c.out.SetReadDeadline(t) }
func (c *sshConn) SetReadDeadline(t time.Time) error  { return c.out.SetReadDeadline(t) }
func (c *sshConn) SetWriteDeadline(t time.Time) error { return nil } // a pipe of exec has none

type sshAddr struct{}

// Network implements [net.Addr].
func (sshAddr) Network() string { return "ssh" }

// String implements [net.Addr].
func (sshAddr) String() string { return "ssh" }

// message keeps the first lines that a process writes to its standard error.
type message struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const maxSaid = 1 << 10

// Write implements [io.Writer].
func (m *message) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text.Write(p[:min(len(p), maxSaid-min(maxSaid, m.text.Len()))])
	return len(p), nil
}

func (m *message) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(strings.Fields(m.text.String()), " ")
}
