package main

import (
	"runtime"
	"sync"
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

// What is left behind, in bytes, rounded up from measurements. The Go runtime
// itself would collect only at 4 MiB, twice as much as all of the rest.
const (
	startGarbage   = 1 << 10   // by a start and its end, beside the payload
	payloadGarbage = 4         // by each byte of a payload
	scanGarbage    = 200       // by each process when all are counted
	garbageLimit   = 256 << 10 // makes a collection worth half a millisecond
)

// server is the state of PID 1.
type server struct {
	conn   *initproto.Conn
	forked chan struct{} // wakes the reaper, which sleeps while there are no children

	// mu is held from before a fork until the child is in live and reported,
	// and while children are reaped. So no exit is seen before its start, and
	// no pid is signalled after it was free for another process.
	mu      sync.Mutex
	live    map[int]uint32 // the running commands: pid to number
	garbage int            // bytes since the last collection
}

func newServer(conn *initproto.Conn) *server {
	return &server{conn: conn, forked: make(chan struct{}, 1), live: map[int]uint32{}}
}

// serve returns the status to exit with, when the daemon is gone.
func (s *server) serve() int {
	hello := initproto.Hello{Version: initproto.Version, PID: syscall.Getpid()}
	if err := s.conn.Send(hello); err != nil {
		return initproto.ExitLost
	}
	reserveThreads() // while the daemon prepares its first request
	go s.reap()
	for {
		m, fds, err := s.conn.Recv()
		if err != nil {
			return statusOf(err)
		}
		if err := s.handle(m, fds); err != nil {
			return statusOf(err)
		}
		// Lets the reaper go to wait first: the daemon awaits its news, and what
		// runs next after a blocking call is found only some 50 µs later.
		runtime.Gosched()
	}
}

func (s *server) handle(m initproto.Message, fds []int) error {
	switch m := m.(type) {
	case initproto.Start:
		return s.start(m, fds)
	case initproto.Signal:
		return s.signal(m)
	}
	return initproto.FormatError("message for the daemon")
}

func statusOf(err error) int {
	if _, ok := err.(initproto.FormatError); ok {
		return initproto.ExitProtocol
	}
	return initproto.ExitLost
}

// start starts a command and says so. fds are the payload and the streams.
func (s *server) start(m initproto.Start, fds []int) error {
	p, size, err := readPayload(fds[0])
	if err != nil {
		initproto.CloseFDs(fds)
		return s.conn.Send(initproto.Failed{Exec: m.Exec, Stage: initproto.StageRequest, Errno: errnoOf(err)})
	}
	makeHome(p.Env)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.discard(startGarbage + payloadGarbage*size)
	pid, failure := spawn(p, m.Stdio, fds[1:])
	// Before the answer: the daemon must see the end of a stream as soon as
	// the command is gone.
	initproto.CloseFDs(fds)
	if failure != nil {
		return s.conn.Send(initproto.Failed{Exec: m.Exec, Stage: failure.stage, Errno: failure.errno})
	}
	s.live[pid] = m.Exec
	if err := s.conn.Send(initproto.Started{Exec: m.Exec, PID: pid}); err != nil {
		return err
	}
	select {
	case s.forked <- struct{}{}:
	default: // it has yet to see the previous one
	}
	return nil
}

// signal signals the process group of a command that has not been reaped, so
// the group cannot be another's by now.
func (s *server) signal(m initproto.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := error(syscall.ESRCH)
	for pid, exec := range s.live {
		if exec == m.Exec {
			err = syscall.Kill(-pid, m.Signal)
		}
	}
	return s.conn.Send(initproto.Signaled{Exec: m.Exec, Errno: errnoOf(err)})
}

// discard notes garbage and collects it, beside the next request, when that
// is worth it.
func (s *server) discard(bytes int) {
	s.garbage += bytes
	if s.garbage > garbageLimit {
		s.garbage = 0
		go runtime.GC()
	}
}

// errnoOf returns the errno that err is: 0 for nil, EINVAL for what is none.
func errnoOf(err error) syscall.Errno {
	switch err := err.(type) {
	case nil:
		return 0
	case syscall.Errno:
		return err
	}
	return syscall.EINVAL
}
