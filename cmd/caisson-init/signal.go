package main

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

// maxScans bounds the search for processes that multiply while it lasts. What
// is found is stopped, so few are ever needed.
const maxScans = 64

// signal signals what m says of a command. While it is not reaped neither its
// pid nor its group can be another's.
func (s *server) signal(m initproto.Signal) {
	answer := initproto.Signaled{Exec: m.Exec, Errno: syscall.ESRCH}
	r := s.records[m.Exec]
	switch {
	case r == nil:
	case m.Scope == initproto.ScopeAll:
		answer.Count, answer.Errno = s.signalAll(r, m.Signal)
	case r.running:
		answer.Errno = errnoOf(syscall.Kill(-r.pid, m.Signal))
	}
	s.send(answer)
}

// signalAll signals every process of r. Once r is reaped these are the rest of
// its session, whose number the kernel keeps for as long as there is one.
func (s *server) signalAll(r *record, sig syscall.Signal) (int, syscall.Errno) {
	if r.empty || !r.running && s.live[r.pid] != nil { // the number is another's
		return 0, syscall.ESRCH
	}
	h := hunt{session: r.pid, sig: sig, found: map[int]bool{}}
	if r.running {
		h.root = r.pid
	}
	errno := h.run()
	s.discard(scanGarbage * h.seen)
	return h.signalled, errno
}

// hunt finds and signals processes.
type hunt struct {
	session   int
	root      int // 0 for none
	sig       syscall.Signal
	found     map[int]bool
	signalled int
	seen      int
}

// run returns EAGAIN if it gave up finding all. For SIGKILL it stops what it
// finds until there is no more, so that nothing escapes by forking, or by a new
// parent when its own is killed first, and only then kills.
func (h *hunt) run() syscall.Errno {
	killed := false
	for range maxScans {
		fresh, err := h.scan()
		switch {
		case err != nil:
			return errnoOf(err)
		case h.sig != syscall.SIGKILL:
			h.send(fresh)
			return h.result()
		case killed && len(fresh) == 0:
			return h.result()
		case killed:
			h.send(fresh)
		case len(fresh) == 0:
			h.sendAll()
			killed = true
		default:
			stop(fresh)
		}
	}
	if !killed {
		h.sendAll()
	}
	return syscall.EAGAIN
}

func stop(pids []int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // may have ended since
	}
}

func (h *hunt) result() syscall.Errno {
	if h.signalled == 0 {
		return syscall.ESRCH
	}
	return 0
}

func (h *hunt) send(pids []int) {
	for _, pid := range pids {
		if syscall.Kill(pid, h.sig) == nil {
			h.signalled++
		}
	}
}

func (h *hunt) sendAll() {
	for pid := range h.found {
		h.send([]int{pid})
	}
}

// scan returns what has not been found before.
func (h *hunt) scan() ([]int, error) {
	list, err := others()
	if err != nil {
		return nil, err
	}
	h.seen += len(list)
	var fresh []int
	for _, pid := range family(list, h.session, h.root) {
		if !h.found[pid] {
			h.found[pid] = true
			fresh = append(fresh, pid)
		}
	}
	return fresh, nil
}

// family returns the processes of list that are in session, or are root, or
// descend from any of these.
func family(list []process, session, root int) []int {
	in := map[int]bool{}
	var pids []int
	for grown := true; grown; {
		grown = false
		for _, p := range list {
			if !in[p.pid] && (p.session == session || p.pid == root || in[p.parent]) {
				in[p.pid], grown = true, true
				pids = append(pids, p.pid)
			}
		}
	}
	return pids
}
