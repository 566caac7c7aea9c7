package main

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

const (
	// endsChunk is how much output makes an entry.
	endsChunk = 32 << 10
	// killWait bounds the wait for the end of what was killed.
	killWait = 1000 * millisecond
)

// leave ends all but this process, and writes for a later daemon how commands had
// ended before, and what the pipes of all commands hold.
func (s *server) leave() {
	if s.ends < 0 {
		return
	}
	w := endsWriter{fd: s.ends, chunk: make([]byte, endsChunk)}
	s.mu.Lock()
	for _, r := range s.sorted() {
		if exit := r.ended(); exit != nil {
			w.put(initproto.Ended{Kind: initproto.EndsExited, Exec: r.exec, Data: initproto.Encode(*exit)})
		}
	}
	s.mu.Unlock()
	s.killOthers()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.sorted() {
		w.drain(r, 1, initproto.EndsStdout)
		if r.term != nil { // which has room now for what the terminal holds
			s.copyTerminal(r.term)
			w.drain(r, 1, initproto.EndsStdout)
		}
		w.drain(r, 2, initproto.EndsStderr)
	}
	w.put(initproto.Ended{Kind: initproto.EndsWhole})
}

// ended is how r ended, told or not; nil while it runs.
func (r *record) ended() *initproto.Exited {
	if r.exit == nil && r.term != nil {
		return r.term.exit
	}
	return r.exit
}

// killOthers returns when the commands are reaped: nothing is written any more then,
// and their memory is free.
func (s *server) killOthers() {
	_ = syscall.Kill(-1, syscall.SIGKILL) // fails where there is nobody else
	for until := bootTime() + killWait; bootTime() < until; pause(millisecond) {
		s.mu.Lock()
		left := len(s.live)
		s.mu.Unlock()
		if left == 0 {
			return
		}
	}
}

// endsWriter appends entries to a file. What comes after one that had no room is
// left out.
type endsWriter struct {
	fd    int
	full  bool
	entry []byte // what is being written
	chunk []byte // what was read
}

func (w *endsWriter) put(e initproto.Ended) {
	if w.full {
		return
	}
	w.entry = initproto.AppendEnded(w.entry[:0], e)
	for rest := w.entry; len(rest) > 0; {
		n, err := write(w.fd, rest)
		if err != nil || n == 0 {
			w.full = true
			return
		}
		rest = rest[n:]
	}
}

// drain moves what the pipe of a stream holds.
func (w *endsWriter) drain(r *record, stream int, kind initproto.EndsKind) {
	fd := r.held[stream]
	if fd < 0 || syscall.SetNonblock(fd, true) != nil {
		return
	}
	for !w.full {
		n, err := read(fd, w.chunk)
		if err != nil || n == 0 {
			return
		}
		w.put(initproto.Ended{Kind: kind, Exec: r.exec, Data: w.chunk[:n]})
	}
}
