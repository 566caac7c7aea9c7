package pid1

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/initproto"
)

// Options are the daemon's wishes for a connection.
type Options struct {
	// OrphanGrace is how long PID 1 goes on without a daemon once this
	// connection is lost, up to 49 days. 0: it exits at once.
	OrphanGrace time.Duration
	// Ends is the file that PID 1 fills then; see [DecodeEnds]. nil: none.
	Ends *os.File
	// MaxHeld bounds the commands that are adopted: a PID 1 that says it has
	// more is refused. 0 is initproto.MaxHeld.
	MaxHeld int
}

func (o Options) welcome() initproto.Welcome {
	const most = 1<<32 - 1
	ms := (o.OrphanGrace + time.Millisecond - 1).Milliseconds()
	return initproto.Welcome{OrphanGraceMillis: uint32(min(max(ms, 0), most)), Ends: o.Ends != nil}
}

func (o Options) files() parcel {
	if o.Ends == nil {
		return parcel{}
	}
	return parcel{streams: []*os.File{o.Ends}}
}

func (o Options) maxHeld() int {
	if o.MaxHeld <= 0 {
		return initproto.MaxHeld
	}
	return min(o.MaxHeld, initproto.MaxHeld)
}

// Held is a command that an earlier daemon started and nobody has released: it
// runs, or Exec.Wait soon tells how it ended.
type Held struct {
	Exec *Exec
	// The outside ends of its pipes, non-blocking and for the caller to close;
	// nil where there is none.
	Stdin, Stdout, Stderr *os.File
	Staging               *os.File // open for both reading and writing
}

func (h Held) close() {
	for _, f := range []*os.File{h.Stdin, h.Stdout, h.Stderr, h.Staging} {
		if f != nil {
			_ = f.Close() // nothing was written
		}
	}
}

func closeHeld(list []Held) {
	for _, h := range list {
		h.close()
	}
}

// adopt takes over what PID 1 holds: n commands. Its connection lets descriptors
// through in here only.
func (s *socket) adopt(n int) (list []Held, err error) {
	defer func() {
		if err != nil {
			closeHeld(list)
			list = nil
		}
	}()
	if err := s.passRights(true); err != nil {
		return nil, err
	}
	if err := s.send(initproto.Adopt{}, parcel{}); err != nil {
		return nil, fmt.Errorf("ask for the held commands: %w", err)
	}
	var last uint32
	for range n {
		m, files, err := s.recvHeld()
		if err != nil {
			return list, fmt.Errorf("await held command: %w", err)
		}
		h := Held{Exec: adoptedExec(m), Stdin: files[0], Stdout: files[1], Stderr: files[2], Staging: files[3]}
		list = append(list, h)
		if m.Exec <= last {
			return list, violation("command %d handed over after %d", m.Exec, last)
		}
		last = m.Exec
	}
	return list, s.passRights(false)
}

// passRights allows or refuses descriptors; see refuseRights.
func (s *socket) passRights(allow bool) error {
	on := 0
	if allow {
		on = 1
	}
	var err error
	cerr := control(s.conn, func(fd int) {
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, on); errors.Is(err, unix.ENOPROTOOPT) {
			err = nil // before Linux 6.16 nothing can be refused
		}
	})
	return errors.Join(cerr, err)
}

// recvHeld receives one Held and opens its files anew, so that PID 1 has no say
// in whether they block.
func (s *socket) recvHeld() (m initproto.Held, files [4]*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(len(files)*4))
	n, oobn, flags, _, err := s.conn.ReadMsgUnix(s.buf[:], oob)
	if err != nil {
		return m, files, err
	}
	fds, ok := rights(oob[:oobn])
	// What is no pipe may take its time to be closed (SO_LINGER), but no longer
	// than the sandbox lives, which ends with the violation.
	defer func() { go closeAll(fds) }()
	if !ok || flags&unix.MSG_CTRUNC != 0 {
		return m, files, violation("descriptors of another number or kind")
	}
	if m, err = s.decodeHeld(n, flags, len(fds)); err != nil {
		return m, files, err
	}
	files, err = openHeld(m, fds)
	return m, files, err
}

func (s *socket) decodeHeld(n, flags, fds int) (initproto.Held, error) {
	message, err := s.decode(n, flags)
	if err != nil {
		return initproto.Held{}, err
	}
	m, ok := message.(initproto.Held)
	switch {
	case !ok:
		return m, violation("%T instead of a held command", message)
	case fds != m.Stdio.Count():
		return m, violation("%d descriptors for %d streams", fds, m.Stdio.Count())
	}
	return m, nil
}

// openHeld returns the ends that m names, by their roles. None of fds is kept.
func openHeld(m initproto.Held, fds []int) (files [4]*os.File, err error) {
	defer func() {
		if err != nil {
			Held{Stdin: files[0], Stdout: files[1], Stderr: files[2], Staging: files[3]}.close()
			files = [4]*os.File{}
		}
	}()
	for i, mode := range outsideModes {
		if m.Stdio&(1<<i) == 0 {
			continue
		}
		fd := fds[0]
		fds = fds[1:]
		if err := checkPipe(fd, mode.held); err != nil {
			return files, violation("stream %d of command %d: %w", i, m.Exec, err)
		}
		own, err := reopen(fd, mode.own)
		if err != nil {
			return files, err
		}
		files[i] = os.NewFile(uintptr(own), "pipe")
	}
	return files, nil
}

// rights returns all descriptors in oob, and whether there was nothing else.
func rights(oob []byte) (fds []int, ok bool) {
	if len(oob) == 0 {
		return nil, true
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, false
	}
	ok = true
	for i := range list {
		got, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			ok = false
			continue
		}
		fds = append(fds, got...)
	}
	return fds, ok
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// closeAside closes conn, which may have descriptors in its queue whose closing
// takes time, and waits for that no longer than ctx.
func closeAside(ctx context.Context, conn *net.UnixConn) error {
	done := make(chan error, 1)
	go func() { done <- conn.Close() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return nil
	}
}
