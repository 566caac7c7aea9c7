package server

import (
	"context"
	"io"
	"sync"

	"github.com/caisson-run/caisson/runtime"
)

const (
	// stdinBuffer is how much standard input the daemon holds for a command that
	// does not read. Clients stay below it (see RunResponse.stdin_taken), so that
	// their signals are always received.
	stdinBuffer = 512 << 10
	// takenStep is how much standard input is taken before its sender is told,
	// where more is waiting. It is far below what a client may have outstanding.
	takenStep = 64 << 10
)

// stdin passes a caller's input on to the command, within a bound.
type stdin struct {
	mu    sync.Mutex
	moved sync.Cond
	data  []byte
	total int64 // bytes taken by the reader
	told  int64 // of those, what taken was told
	ended bool
	left  bool // by a caller who may have had more to say
	taken func(total int64)
}

func newStdin(taken func(total int64)) *stdin {
	s := &stdin{taken: taken}
	s.moved.L = &s.mu
	return s
}

// push appends p, waiting while the buffer is full. It drops p once ended, and
// when ctx is done: then there is no reader any more.
func (s *stdin) push(ctx context.Context, p []byte) {
	stop := context.AfterFunc(ctx, s.leave)
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended && len(s.data) > 0 && len(s.data)+len(p) > stdinBuffer {
		s.moved.Wait()
	}
	if !s.ended {
		s.data = append(s.data, p...)
		s.moved.Broadcast()
	}
}

// end lets the reader see the end of the file after what was pushed.
func (s *stdin) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.moved.Broadcast()
}

// leave lets the reader see that the caller went away, unless that had ended before.
// What was not read is dropped: the caller was not told that it is taken, and would
// send it again.
func (s *stdin) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.left, s.data = true, true, nil
		s.moved.Broadcast()
	}
}

// Read implements io.Reader. Whoever reads again has passed on what it read
// before: only then the sender is told, who may forget it.
func (s *stdin) Read(p []byte) (int, error) {
	if total, due := s.due(); due {
		s.taken(total)
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, left := s.next(p)
	switch {
	case n > 0:
		return n, nil
	case left:
		return 0, runtime.ErrInputLeft
	}
	return 0, io.EOF
}

func (s *stdin) due() (total int64, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if untold := s.total - s.told; untold < takenStep && (untold == 0 || len(s.data) > 0) {
		return 0, false
	}
	s.told = s.total
	return s.total, true
}

func (s *stdin) next(p []byte) (n int, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.data) == 0 && !s.ended {
		s.moved.Wait()
	}
	n = copy(p, s.data)
	s.data = s.data[n:]
	if len(s.data) == 0 {
		s.data = nil // the array is as large as the most that waited
	}
	s.total += int64(n)
	s.moved.Broadcast()
	return n, s.left
}
