package initproto

import "syscall"

// ErrClosed is what Recv returns when the other side is gone.
const ErrClosed = connError("connection closed by the peer")

// ErrFiles is what Recv returns, with the message but without descriptors,
// when this process is out of descriptors.
const ErrFiles = connError("no room for the message's descriptors")

type connError string

func (e connError) Error() string { return string(e) }

// Conn is one end of a connection on a blocking descriptor: PID 1's end. The
// daemon has its own, with deadlines, in runtime/pid1. One goroutine may
// receive while others send.
type Conn struct {
	fd  int
	buf []byte
	oob []byte
}

// Dial connects to the socket at path.
func Dial(path string) (*Conn, error) { return DialTimeout(path, 0) }

// DialTimeout is Dial with a Conn whose calls, the connecting among them, fail
// with EAGAIN after so many milliseconds. 0 is no timeout.
func DialTimeout(path string, millis int64) (*Conn, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if millis > 0 {
		if err := setTimeout(fd, millis); err != nil {
			syscall.Close(fd)
			return nil, err
		}
	}
	if err := retry(func() error { return syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}) }); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return NewConn(fd), nil
}

// NewConn takes over fd, a connected and blocking SOCK_SEQPACKET socket.
func NewConn(fd int) *Conn {
	return &Conn{fd: fd, buf: make([]byte, MaxPacket), oob: make([]byte, syscall.CmsgSpace(4*MaxFDs))}
}

// Close ends the connection.
func (c *Conn) Close() error { return syscall.Close(c.fd) }

// Shutdown makes a Recv that waits return ErrClosed, and each that follows.
func (c *Conn) Shutdown() { _ = syscall.Shutdown(c.fd, syscall.SHUT_RDWR) }

// SetTimeout changes what DialTimeout set.
func (c *Conn) SetTimeout(millis int64) error { return setTimeout(c.fd, millis) }

func setTimeout(fd int, millis int64) error {
	t := syscall.NsecToTimeval(millis * 1e6)
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &t); err != nil {
		return err
	}
	return syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &t)
}

// Send sends m and copies of fds, in one packet.
func (c *Conn) Send(m Message, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = syscall.UnixRights(fds...)
	}
	b := Encode(m)
	return retry(func() error {
		_, err := syscall.SendmsgN(c.fd, b, oob, nil, syscall.MSG_NOSIGNAL)
		return err
	})
}

// Recv receives one message and its descriptors, close-on-exec and owned by
// the caller. Where the number of descriptors is not the one that the message
// has, all are closed and the error is a FormatError, or ErrFiles.
func (c *Conn) Recv() (Message, []int, error) {
	n, oobn, flags, err := c.recvmsg()
	if err == syscall.ECONNRESET {
		// The peer ended before it read all. What it had sent is still to come.
		n, oobn, flags, err = c.recvmsg()
	}
	switch {
	case err == syscall.ECONNRESET:
		return nil, nil, ErrClosed
	case err != nil:
		return nil, nil, err
	}
	fds, ok := parseRights(c.oob[:oobn])
	m, err := c.check(n, flags, len(fds), ok)
	if err != nil {
		CloseFDs(fds)
		return m, nil, err
	}
	return m, fds, nil
}

func (c *Conn) recvmsg() (n, oobn, flags int, err error) {
	err = retry(func() error {
		var err error
		n, oobn, flags, _, err = syscall.Recvmsg(c.fd, c.buf, c.oob, syscall.MSG_CMSG_CLOEXEC)
		return err
	})
	return n, oobn, flags, err
}

// check returns a message with ErrFiles only.
func (c *Conn) check(n, flags, fds int, rights bool) (Message, error) {
	cut := flags&syscall.MSG_CTRUNC != 0
	switch {
	case n == 0 && fds == 0 && flags&(syscall.MSG_TRUNC|syscall.MSG_CTRUNC) == 0:
		return nil, ErrClosed
	case flags&syscall.MSG_TRUNC != 0:
		return nil, FormatError("packet too long")
	case !rights:
		return nil, FormatError("unknown control data")
	case cut && fds >= MaxFDs:
		return nil, FormatError("too many descriptors")
	}
	m, err := Decode(c.buf[:n])
	switch {
	case err != nil:
		return nil, err
	case cut && fds < wantFDs(m):
		return m, ErrFiles
	case cut || fds != wantFDs(m):
		return nil, FormatError("wrong number of descriptors")
	}
	return m, nil
}

// wantFDs returns how many descriptors come with m.
func wantFDs(m Message) int {
	switch m := m.(type) {
	case Start:
		return 1 + int(one(m.Inputs)) + 2*int(one(m.Tag)) + m.Stdio.Count() + m.Held.Count()
	case Held:
		return m.Stdio.Count()
	case Welcome:
		return int(one(m.Ends))
	}
	return 0
}

// parseRights returns all descriptors in oob, and whether there was nothing
// else in it.
func parseRights(oob []byte) (fds []int, ok bool) {
	if len(oob) == 0 {
		return nil, true
	}
	cmsgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, false
	}
	ok = true
	for _, cmsg := range cmsgs {
		got, err := syscall.ParseUnixRights(&cmsg)
		if err != nil {
			ok = false
			continue
		}
		fds = append(fds, got...)
	}
	return fds, ok
}

// CloseFDs closes all of fds.
func CloseFDs(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}

func retry(f func() error) error {
	for {
		if err := f(); err != syscall.EINTR {
			return err
		}
	}
}
