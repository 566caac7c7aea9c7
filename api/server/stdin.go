package server

import (
	"context"
	"io"
	"sync"
)

// stdinBuffer is how much standard input the daemon holds for a command that
// does not read. Clients stay below it (see RunResponse.stdin_taken), so that
// their signals are always received.
const stdinBuffer = 512 << 10

// stdin passes a caller's input on to the command, within a bound.
type stdin struct {
	mu    sync.Mutex
	moved sync.Cond
	data  []byte
	total int64 // bytes taken by the reader
	ended bool
	taken func(total int64) // told after each read
}

func newStdin(taken func(total int64)) *stdin {
	s := &stdin{taken: taken}
	s.moved.L = &s.mu
	return s
}

// push appends p, waiting while the buffer is full. It drops p once ended, and
// when ctx is done: then there is no reader any more.
func (s *stdin) push(ctx context.Context, p []byte) {
	stop := context.AfterFunc(ctx, s.end)
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

// Read implements io.Reader.
func (s *stdin) Read(p []byte) (int, error) {
	n, total := s.next(p)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	s.taken(total)
	return n, nil
}

func (s *stdin) next(p []byte) (n int, total int64) {
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
	return n, s.total
}
