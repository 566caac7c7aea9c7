package main

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

// reap reaps every child: commands, and orphans that the kernel gave to PID 1.
// It sleeps in waitid(2), not on SIGCHLD, so nothing is lost or polled for.
func (s *server) reap() {
	for {
		if err := awaitExit(); err == syscall.ECHILD {
			<-s.forked // orphans descend from commands: without these there are none
			continue
		}
		s.collect()
	}
}

// awaitExit returns when a child has ended, and leaves it to be reaped under
// the lock; ForkExec reaps a child of its own when it fails.
func awaitExit() error {
	const pAll, wExited, wNoWait = 0, 4, 0x01000000 // <linux/wait.h>
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pAll, 0, 0, wExited|wNoWait, 0, 0)
		if errno != syscall.EINTR {
			return asError(errno)
		}
	}
}

// collect reaps all that have ended and reports the commands among them.
func (s *server) collect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []*initproto.Exited
	var records []*record
	alone := false
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &usage)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 {
			alone = err == syscall.ECHILD
			break
		}
		r, ok := s.live[pid]
		if !ok {
			continue
		}
		delete(s.live, pid)
		r.running = false
		if r.launch != nil {
			s.settle(r, true) // Started or Failed come first
		}
		if !r.dropped {
			records = append(records, r)
			ended = append(ended, exitOf(r.exec, status, usage))
		}
	}
	for i, r := range records {
		s.ended(r, ended[i], alone)
	}
}

// ended reports the end of r, or has its terminal do so. Without children
// nothing can remain, which spares the usual command the reading of /proc.
func (s *server) ended(r *record, m *initproto.Exited, alone bool) {
	r.removeInputs()
	r.empty = alone
	if !alone {
		c := s.countOthers(r.pid)
		m.Remaining, r.empty = c.others, c.others >= 0 && c.session == 0
		s.discard(scanGarbage * c.seen)
	}
	if r.term != nil {
		r.term.end(m)
		s.poller.wake()
		return
	}
	r.exit = m
	s.tell(r)
}

func exitOf(exec uint32, status syscall.WaitStatus, usage syscall.Rusage) *initproto.Exited {
	m := &initproto.Exited{
		Exec:         exec,
		UserMicros:   micros(usage.Utime),
		SystemMicros: micros(usage.Stime),
		MaxRSSKiB:    int64(usage.Maxrss),
	}
	if status.Signaled() {
		m.Signal = status.Signal()
	} else {
		m.Code = uint8(status.ExitStatus())
	}
	return m
}

func micros(t syscall.Timeval) int64 { return int64(t.Sec)*1e6 + int64(t.Usec) }
