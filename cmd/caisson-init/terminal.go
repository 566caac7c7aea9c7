package main

import (
	"slices"
	"syscall"
	"unsafe"

	"github.com/caisson-run/caisson/initproto"
)

// From <asm-generic/ioctls.h>; TIOCGPTPEER is of Linux 4.13.
const (
	tiocswinsz  = 0x5414
	tiocsptlck  = 0x40045431
	tiocgptpeer = 0x5441
)

const (
	// copySize is what is read at once: the most that a terminal gives.
	copySize = 4096
	// copyRounds bounds how long a terminal may keep the others waiting.
	copyRounds = 4
	// endBudget bounds what is copied after the command has ended. A terminal
	// holds some 12 KiB; more comes from what goes on writing to it.
	endBudget = 64 << 10
)

// terminal is the pseudo terminal of a command, between which and the passed
// pipes PID 1 copies. All descriptors are non-blocking, and used under the
// server's lock.
type terminal struct {
	rec    *record
	master int
	slave  int // open until the end, so that the master always has another side
	in     int // -1: none, or ended
	out    int // -1: none, or without a reader; output is then dropped

	typed  []byte // read from in, yet to be written
	shown  []byte // read from master, yet to be written
	last   byte   // the last of typed
	ready  bool
	broken bool              // the master cannot be read any more
	exit   *initproto.Exited // to be told at the end; nil while the command runs
	budget int               // bytes that may still be copied then

	inBuf, outBuf [copySize]byte
}

// openTerminal gives rec a new terminal, which takes over the streams of r.
func (s *server) openTerminal(r *request, rec *record) (err error) {
	if err := s.startPoller(); err != nil {
		return err
	}
	t := &terminal{rec: rec, master: -1, slave: -1, in: -1, out: -1}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if t.master, err = openFile("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK); err != nil {
		return err
	}
	if t.slave, err = openPeer(t.master); err != nil {
		return err
	}
	_ = syscall.Fchown(t.slave, int(r.UID), -1) // a courtesy that needs rights; the command has it open
	if err := setSize(t.master, r.Rows, r.Cols); err != nil {
		return err
	}
	for i, fd := range []*int{&t.in, &t.out} {
		*fd, r.streams[i] = r.streams[i], -1
		if *fd >= 0 {
			if err := syscall.SetNonblock(*fd, true); err != nil {
				return err
			}
		}
	}
	s.discard(terminalGarbage)
	rec.term = t
	s.terms = append(s.terms, t)
	s.poller.wake()
	return nil
}

func openFile(path string, flags int) (int, error) {
	fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// openPeer opens the other side by descriptor: its path would mean what is
// mounted at /dev/pts.
func openPeer(master int) (int, error) {
	var unlock int32
	if err := ioctl(master, tiocsptlck, unsafe.Pointer(&unlock)); err != nil {
		return -1, err
	}
	fd, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(master), tiocgptpeer, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// setSize sends SIGWINCH to the foreground where the size changes.
func setSize(master int, rows, cols uint16) error {
	size := [4]uint16{rows, cols}
	return ioctl(master, tiocswinsz, unsafe.Pointer(&size))
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	return asError(errno)
}

// closeTerminal ends t, upon which whoever still has it open gets EIO.
func (s *server) closeTerminal(t *terminal) {
	t.close()
	t.rec.term = nil
	if i := slices.Index(s.terms, t); i >= 0 {
		s.terms = slices.Delete(s.terms, i, i+1)
	}
}

func (t *terminal) close() {
	for _, fd := range []*int{&t.master, &t.slave, &t.in, &t.out} {
		closeFD(fd)
	}
}

// wants names what t waits for.
func (t *terminal) wants(add func(fd int, events int16)) {
	var events int16
	if len(t.shown) == 0 && !t.broken {
		events |= pollIn
	}
	if len(t.typed) > 0 {
		events |= pollOut
	}
	if events != 0 {
		add(t.master, events)
	}
	if len(t.shown) > 0 {
		add(t.out, pollOut)
	}
	if len(t.typed) == 0 && t.in >= 0 {
		add(t.in, pollIn)
	}
}

// copyTerminal moves what can be moved. When the command has ended and all is
// copied, it ends t and reports the command.
func (s *server) copyTerminal(t *terminal) {
	if t.exit == nil {
		t.input()
	}
	if t.output() {
		t.rec.exit = t.exit
		s.closeTerminal(t)
		s.tell(t.rec)
	}
}

// output copies to the reader of stdout, and reports whether it has come to
// the end.
func (t *terminal) output() (done bool) {
	for round := 0; t.exit != nil || round < copyRounds; round++ {
		if len(t.shown) > 0 {
			n, err := write(t.out, t.shown)
			if err == syscall.EAGAIN {
				return false
			}
			t.shown = t.shown[n:]
			if err != nil {
				closeFD(&t.out)
				t.shown = nil
			}
			continue
		}
		if t.exit != nil && t.budget <= 0 {
			return true
		}
		n, err := read(t.master, t.outBuf[:])
		if n <= 0 {
			t.broken = err != syscall.EAGAIN
			return t.exit != nil
		}
		t.budget -= n
		if t.out >= 0 {
			t.shown = t.outBuf[:n]
		}
	}
	return false
}

// input copies what was typed.
func (t *terminal) input() {
	if len(t.typed) == 0 && t.in >= 0 {
		n, err := read(t.in, t.inBuf[:])
		switch {
		case n > 0:
			t.typed, t.last = t.inBuf[:n], t.inBuf[n-1]
		case err == syscall.EAGAIN:
			return
		default:
			closeFD(&t.in)
			t.typed = t.eof()
		}
	}
	if len(t.typed) > 0 {
		n, err := write(t.master, t.typed)
		t.typed = t.typed[n:]
		if err != nil && err != syscall.EAGAIN {
			t.typed = nil
		}
	}
}

// eof returns what to type at the end of the input: VEOF, which in the midst of
// a line only ends the line's first part, and so comes twice there.
func (t *terminal) eof() []byte {
	var mode syscall.Termios
	if ioctl(t.master, syscall.TCGETS, unsafe.Pointer(&mode)) != nil {
		return nil
	}
	char := mode.Cc[syscall.VEOF]
	switch {
	case char == 0: // disabled
		return nil
	case mode.Lflag&syscall.ICANON != 0 && t.last != 0 && t.last != '\n' && t.last != '\r':
		return []byte{char, char}
	}
	return []byte{char}
}

// end begins the end of t, whose command has ended.
func (t *terminal) end(m *initproto.Exited) { t.exit, t.budget = m, endBudget }

func read(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

func write(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Write(fd, b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
