package export

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/audit"
)

// Kind says how a receiver is reached.
type Kind string

// The kinds. UDP is none: it loses records in silence.
const (
	TLS      Kind = "tls"      // syslog (RFC 5425)
	TCP      Kind = "tcp"      // syslog with octet counting (RFC 6587)
	Unix     Kind = "unix"     // the same over a stream socket
	Journald Kind = "journald" // native protocol of systemd's journal
)

// JournalSocket is where the journal listens (systemd-journald.service(8)).
const JournalSocket = "/run/systemd/journal/socket"

// Receiver is where records go.
type Receiver struct {
	Kind     Kind
	Address  string // HOST:PORT, or the path of a socket
	Facility int    // of syslog, 0 to 23 (RFC 5424, section 6.2.1)
	TLS      *tls.Config
	Hostname string // of this host, in syslog messages
}

// String names the receiver for people.
func (r Receiver) String() string { return string(r.Kind) + " " + r.Address }

func (r Receiver) id() string {
	sum := sha256.Sum256([]byte(r.String()))
	return hex.EncodeToString(sum[:8])
}

// window returns how many bytes the buffers on the way hold at most: the kernel's for a
// local socket, and the largest that Linux gives a TCP connection by default (tcp(7),
// tcp_rmem and tcp_wmem).
func (r Receiver) window() int64 {
	if r.Kind == Unix || r.Kind == Journald {
		return 1 << 20
	}
	return 10 << 20
}

// The time that a connection, and a receiver that takes nothing, may need.
const (
	dialTimeout  = 10 * time.Second
	stallTimeout = time.Minute
	finishWait   = time.Second
)

// conn is a connection with a receiver.
type conn interface {
	send(audit.Record) (size int, err error)
	hasRead() bool           // a local receiver has read everything
	broken() <-chan struct{} // closed when the receiver has ended the connection
	cause() error            // why, after that
	finish() error           // nil if the receiver has everything
	abort()                  // ends what waits
	close()
}

func (r Receiver) dial(ctx context.Context) (conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	switch r.Kind {
	case Journald:
		c, err := d.DialContext(ctx, "unixgram", r.Address)
		if err != nil {
			return nil, err
		}
		return &journal{c.(*net.UnixConn)}, nil
	case Unix:
		c, err := d.DialContext(ctx, "unix", r.Address)
		if errors.Is(err, syscall.EPROTOTYPE) {
			err = fmt.Errorf("%w: it takes datagrams, which get lost with their receiver: name a stream socket, or use journald", err)
		}
		if err != nil {
			return nil, err
		}
		return newStream(c, r), nil
	case TLS:
		c, err := (&tls.Dialer{NetDialer: &d, Config: r.TLS}).DialContext(ctx, "tcp", r.Address)
		if err != nil {
			return nil, err
		}
		return newStream(c, r), nil
	case TCP:
		c, err := d.DialContext(ctx, "tcp", r.Address)
		if err != nil {
			return nil, err
		}
		return newStream(c, r), nil
	}
	return nil, fmt.Errorf("%q is no kind of receiver", r.Kind)
}

// hasRead reports whether the other end of a local socket has read everything, and did
// not end instead, which empties its queue as well (unix(7), SIOCOUTQ).
func hasRead(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	read := false
	err = raw.Control(func(fd uintptr) {
		unread, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		end := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} // after that: the end comes before the queue is emptied
		_, pollErr := unix.Poll(end, 0)
		read = err == nil && pollErr == nil && unread == 0 && end[0].Revents == 0
	})
	return err == nil && read
}

// errStalled says that a receiver took nothing for too long.
func errStalled(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the receiver took nothing for %s: %w", stallTimeout, err)
	}
	return err
}
