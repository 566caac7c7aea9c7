package main

import (
	"runtime"
	"syscall"
	"unsafe"

	"github.com/caisson-run/caisson/initproto"
)

const (
	millisecond = int64(1e6) // in nanoseconds, as all durations here

	// retryMin and retrySpread are between two greetings that came to nothing. They
	// differ, so that the sandboxes of a host do not all come at once.
	retryMin    = 20 * millisecond
	retrySpread = 30 * millisecond

	// wakeTick is how long this process waits to be woken before it looks for a
	// daemon by itself.
	wakeTick = 1000 * millisecond

	// greetTick is how often a greeting that waits looks at the clock, in
	// milliseconds.
	greetTick = 200
)

// serve returns the status to exit with.
func (s *server) serve() int {
	conn, err := initproto.Dial(s.path)
	if err != nil {
		return initproto.ExitConnect
	}
	err = s.attend(conn)
	for {
		if _, broken := err.(initproto.FormatError); broken {
			return initproto.ExitProtocol
		}
		if bootTime() >= s.until {
			s.leave()
			return initproto.ExitLost
		}
		if conn, err = s.redial(); err != nil {
			continue
		}
		if err = s.attend(conn); !s.counted {
			pause(retryMin + bootTime()%retrySpread)
		}
	}
}

// redial connects to the next daemon, or returns an error when it is time to look
// at the clock.
func (s *server) redial() (*initproto.Conn, error) {
	wake := openWake(s.path) // first, so that no daemon is missed that comes in between
	defer wake.close()
	conn, err := initproto.DialTimeout(s.path, greetTick)
	switch err {
	case nil:
	case syscall.EAGAIN: // it is there, and busy
		pause(retryMin)
	default:
		wake.wait(min(wakeTick, max(0, s.until-bootTime())))
	}
	return conn, err
}

// attend serves the daemon on conn until that is lost, and closes it. The
// orphan grace begins then, if the daemon has welcomed this process.
func (s *server) attend(conn *initproto.Conn) error {
	defer conn.Close()
	s.counted = false
	if err := s.greet(conn); err != nil {
		return err
	}
	s.counted = true
	err := s.converse(conn)
	s.detach()
	s.until = bootTime() + s.grace
	return err
}

// greet hands over what there is and returns when the daemon has said Welcome.
func (s *server) greet(conn *initproto.Conn) error {
	held := s.sorted()
	hello := initproto.Hello{Version: initproto.Version, PID: syscall.Getpid(), Held: len(held)}
	if err := s.insist(func() error { return conn.Send(hello) }); err != nil {
		return err
	}
	s.reserve.Do(reserveThreads) // while the daemon prepares its first request
	if len(held) > 0 {
		if err := s.handOver(conn, held); err != nil {
			return err
		}
	}
	m, fds, err := s.next(conn)
	if err != nil && err != initproto.ErrFiles { // a Welcome counts also where its file has no room
		return err
	}
	welcome, ok := m.(initproto.Welcome)
	if !ok {
		initproto.CloseFDs(fds)
		return initproto.FormatError("no welcome")
	}
	closeFD(&s.ends)
	if len(fds) > 0 {
		s.ends = fds[0]
	}
	if err := conn.SetTimeout(0); err != nil {
		return err
	}
	s.attach(conn, int64(welcome.OrphanGraceMillis)*millisecond)
	return nil
}

// handOver needs no lock: without a connection no record comes or goes, and
// nothing but a request closes what is held.
func (s *server) handOver(conn *initproto.Conn, held []*record) error {
	m, fds, err := s.next(conn)
	initproto.CloseFDs(fds) // an Adopt has none
	if err != nil {
		return err
	}
	if _, ok := m.(initproto.Adopt); !ok {
		return initproto.FormatError("no adoption")
	}
	for _, r := range held {
		stdio, fds := r.outside()
		m := initproto.Held{Exec: r.exec, PID: r.pid, Stdio: stdio}
		if err := s.insist(func() error { return conn.Send(m, fds...) }); err != nil {
			return err
		}
	}
	return nil
}

// next receives a message of the greeting.
func (s *server) next(conn *initproto.Conn) (m initproto.Message, fds []int, err error) {
	err = s.insist(func() (err error) { m, fds, err = conn.Recv(); return err })
	return m, fds, err
}

// insist repeats f while the daemon is slow to read or to speak, and while too
// many descriptors are on their way to it (unix(7)), until the grace is over.
func (s *server) insist(f func() error) error {
	for {
		err := f()
		switch err {
		default:
			return err
		case syscall.ETOOMANYREFS:
			pause(millisecond)
		case syscall.EAGAIN:
		}
		if bootTime() >= s.until {
			return err
		}
	}
}

// attach makes conn the connection, and tells what has ended.
func (s *server) attach(conn *initproto.Conn, grace int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.grace = conn, grace
	for _, r := range s.sorted() {
		if r.exit != nil {
			s.tell(r)
		}
	}
}

// detach undoes the starts that nobody waits for any more.
func (s *server) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nil
	for _, r := range s.records {
		if r.launch != nil {
			s.undo(r)
		}
	}
}

// converse handles requests until the connection is lost.
func (s *server) converse(conn *initproto.Conn) error {
	for {
		m, fds, err := conn.Recv()
		switch {
		case err == initproto.ErrFiles:
			err = s.refuse(m)
		case err == nil:
			err = s.handle(m, fds)
		}
		if err != nil {
			return err
		}
		// Lets the reaper go to wait first: the daemon awaits its news, and what
		// runs next after a blocking call is found only some 50 µs later.
		runtime.Gosched()
	}
}

// bootTime returns CLOCK_BOOTTIME, which goes on while the host is suspended
// (clock_gettime(2)). The clock has been there since Linux 2.6.39.
func bootTime() int64 {
	const clockBoottime = 7
	var t syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

func pause(nanos int64) {
	t := syscall.NsecToTimespec(nanos)
	_ = syscall.Nanosleep(&t, nil) // an interruption only makes it shorter
}
