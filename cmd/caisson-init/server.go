package main

import (
	"runtime"
	"slices"
	"sync"
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

// What is left behind, in bytes, rounded up from measurements. The Go runtime
// itself would collect only at 4 MiB, twice as much as all of the rest.
const (
	startGarbage    = 1536      // by a start and its end, beside the payload
	payloadGarbage  = 4         // by each byte of a payload
	scanGarbage     = 200       // by each process when all are counted
	terminalGarbage = 10 << 10  // by a terminal
	garbageLimit    = 256 << 10 // makes a collection worth half a millisecond
)

// server is the state of PID 1.
type server struct {
	path   string        // of the daemon's socket
	forked chan struct{} // wakes the reaper, which sleeps while there are no children

	// Of the goroutine that has the connection.
	reserve sync.Once
	counted bool  // the last connection was welcomed
	until   int64 // CLOCK_BOOTTIME at which this process gives up without one
	ends    int   // the file of the last Welcome; -1 for none

	// mu is held from before a fork until the child is in live and reported,
	// and while children are reaped. So no exit is seen before its start, and
	// no pid is signalled after it was free for another process.
	mu      sync.Mutex
	conn    *initproto.Conn // nil while no daemon has welcomed this process
	grace   int64           // nanoseconds, of the last Welcome
	live    map[int]*record // the running commands and launchers: by pid
	records map[uint32]*record
	terms   []*terminal
	poller  *poller // nil until it is needed
	garbage int     // bytes since the last collection
}

func newServer(path string) *server {
	s := &server{path: path, ends: -1, forked: make(chan struct{}, 1), live: map[int]*record{}, records: map[uint32]*record{}}
	go s.reap()
	return s
}

func (s *server) handle(m initproto.Message, fds []int) error {
	if m, ok := m.(initproto.Start); ok {
		s.start(m, fds)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := m.(type) {
	case initproto.Signal:
		s.signal(m)
	case initproto.Proceed:
		s.proceed(s.records[m.Exec])
	case initproto.Abandon:
		s.abandon(s.records[m.Exec])
	case initproto.CloseStdin:
		s.records[m.Exec].closeStdin()
	case initproto.Resize:
		s.records[m.Exec].resize(m.Rows, m.Cols)
	case initproto.Release:
		s.release(s.records[m.Exec])
	default:
		return initproto.FormatError("message for the daemon")
	}
	return nil
}

// refuse answers a Start for whose descriptors there was no room.
func (s *server) refuse(m initproto.Message) error {
	start, ok := m.(initproto.Start)
	if !ok {
		return initproto.FormatError("descriptors with what has none")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(initproto.Failed{Exec: start.Exec, Stage: initproto.StageRequest, Errno: syscall.EMFILE})
	return nil
}

// send tells the daemon m, if there is one, and reports whether there was. What
// a later daemon must know of m is in the records.
func (s *server) send(m initproto.Message) bool {
	if s.conn == nil {
		return false
	}
	if err := s.conn.Send(m); err != nil {
		s.conn.Shutdown() // which its receiver notices
		s.conn = nil
		return false
	}
	return true
}

// sorted returns the records in the order of their numbers.
func (s *server) sorted() []*record {
	list := make([]*record, 0, len(s.records))
	for _, r := range s.records {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *record) int {
		if a.exec < b.exec {
			return -1
		}
		return 1
	})
	return list
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
