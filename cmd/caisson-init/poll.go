package main

import (
	"runtime"
	"syscall"
	"unsafe"

	"github.com/caisson-run/caisson/initproto"
)

// poller waits for all terminals and launchers at once, so that none of them
// needs a thread. It is started when the first of them is.
type poller struct {
	event int // eventfd, non-blocking: the set has changed
	set   []pollFD
	who   []waiter // whose each of set is, but the first
}

// pollFD is a struct pollfd (poll(2)).
type pollFD struct {
	fd      int32
	events  int16
	revents int16
}

const (
	pollIn  = 0x1
	pollOut = 0x4
)

// waiter is either a terminal or the record of a launcher.
type waiter struct {
	t *terminal
	r *record
}

func (s *server) startPoller() error {
	if s.poller != nil {
		return nil
	}
	event, err := newEvent(false, syscall.O_NONBLOCK)
	if err != nil {
		return err
	}
	s.poller = &poller{event: event}
	go s.poll(s.poller)
	return nil
}

func (p *poller) wake() { signalEvent(p.event) }

// poll never ends. It keeps its thread, in which a pipe without a reader raises
// a signal that must end nothing; no command is forked there.
func (s *server) poll(p *poller) {
	runtime.LockOSThread()
	if err := blockSignal(syscall.SIGPIPE); err != nil {
		syscall.Exit(initproto.ExitSetup)
	}
	for {
		s.mu.Lock()
		p.collect(s)
		s.mu.Unlock()
		p.wait()
		s.mu.Lock()
		s.advance(p)
		s.mu.Unlock()
	}
}

// collect makes the set.
func (p *poller) collect(s *server) {
	clear(p.who) // keeps nothing of what has ended
	p.set = append(p.set[:0], pollFD{fd: int32(p.event), events: pollIn})
	p.who = p.who[:0]
	add := func(fd int, events int16, w waiter) {
		p.set = append(p.set, pollFD{fd: int32(fd), events: events})
		p.who = append(p.who, w)
	}
	for _, t := range s.terms {
		t.wants(func(fd int, events int16) { add(fd, events, waiter{t: t}) })
	}
	for _, r := range s.live {
		if r.launch != nil {
			add(r.launch.report, pollIn, waiter{r: r})
		}
	}
}

func (p *poller) wait() {
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p.set[0])), uintptr(len(p.set)), 0, 0, 0, 0)
		if errno != syscall.EINTR {
			return // ENOMEM passes: the next round asks again
		}
	}
}

// advance does what can be done without waiting. What has been closed since
// the set was made is passed over.
func (s *server) advance(p *poller) {
	if p.set[0].revents != 0 {
		_ = awaitEvent(p.event)
	}
	for i, w := range p.who {
		switch {
		case p.set[i+1].revents == 0:
		case w.t != nil:
			w.t.ready = true
		case w.r.launch != nil:
			s.settle(w.r, false)
		}
	}
	for i := len(s.terms) - 1; i >= 0; i-- { // the last may go
		t := s.terms[i]
		if t.ready || t.exit != nil {
			t.ready = false
			s.copyTerminal(t)
		}
	}
}

// blockSignal blocks sig in the calling thread.
func blockSignal(sig syscall.Signal) error {
	const block = 0
	set := uint64(1) << (sig - 1)
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, block, uintptr(unsafe.Pointer(&set)), 0, 8, 0, 0)
	return asError(errno)
}
