package main

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

// record is a command that PID 1 keeps in mind until the daemon releases it.
type record struct {
	exec     uint32
	pid      int
	held     heldFDs           // -1 for none
	inputs   []input           // that are still to be removed
	running  bool              // not reaped yet
	exit     *initproto.Exited // what is to be told; nil until it may be
	empty    bool              // ended, and its session had no other process
	released bool
	dropped  bool      // the start failed: nothing is told any more
	launch   *launch   // until it is Started
	term     *terminal // until it is copied to its end
}

// heldFDs are what is held of a command: outside ends of stdin, stdout and stderr, and the
// staging pipe of the input.
type heldFDs [4]int

var (
	noFiles = [3]int{-1, -1, -1}
	noHeld  = heldFDs{-1, -1, -1, -1}
)

// outside returns the ends that are still held.
func (r *record) outside() (set initproto.Stdio, fds []int) {
	for i, fd := range r.held {
		if fd >= 0 {
			set |= 1 << i
			fds = append(fds, fd)
		}
	}
	return set, fds
}

// closeStdin, like resize, bears a daemon that is late: r may be nil.
func (r *record) closeStdin() {
	if r != nil {
		closeFD(&r.held[0])
		closeFD(&r.held[3])
	}
}

func (r *record) resize(rows, cols uint16) {
	if r != nil && r.term != nil {
		_ = setSize(r.term.master, rows, cols) // fails on no terminal of ours
	}
}

// release closes what is held. The record goes when the end has been told.
func (s *server) release(r *record) {
	if r == nil {
		return
	}
	r.released = true
	r.closeHeld()
	if r.exit != nil {
		delete(s.records, r.exec)
	}
}

func (r *record) closeHeld() {
	for i := range r.held {
		closeFD(&r.held[i])
	}
}

// tell reports the end of r, of which a released record was kept for.
func (s *server) tell(r *record) {
	if s.send(*r.exit) && r.released {
		delete(s.records, r.exec)
	}
}

// undo ends a start that was not answered with Started. What has been forked is
// reaped in its time.
func (s *server) undo(r *record) {
	r.dropped = true
	delete(s.records, r.exec)
	if r.running {
		_ = syscall.Kill(-r.pid, syscall.SIGKILL)
	}
	r.closeHeld()
	r.removeInputs()
	if r.launch != nil {
		r.launch.close()
		r.launch = nil
	}
	if r.term != nil {
		s.closeTerminal(r.term)
	}
}

// removeInputs removes the input files of a command that has ended.
func (r *record) removeInputs() {
	removeInputs(r.inputs)
	r.inputs = nil
}

// closeFD closes *fd if there is one, and forgets it.
func closeFD(fd *int) {
	if *fd >= 0 {
		syscall.Close(*fd)
		*fd = -1
	}
}
