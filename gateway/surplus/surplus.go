// Package surplus keeps what there is too much of to have a record each: of attempts that a
// limit ended at once, or that cost nothing, the last one has a record, which counts the
// others. So nothing is recorded without a bound, and nothing is without an account.
package surplus

import (
	"sync"
	"time"
)

// The rules by which a limit refuses, as records name them.
const (
	RuleConnections = "limit of connections"
	RuleQuestions   = "limit of questions"
)

// Lateness is by when the last one has its record, if none comes after it that has one anyway.
const Lateness = time.Second

// Surplus is that of one kind of attempts. The zero value with Record is ready.
type Surplus[T any] struct {
	// Record records v and counts those before it that have no record. It must not block.
	Record func(v T, skipped uint64)

	mu      sync.Mutex
	last    *T // that has no record yet, and to which none is newer
	late    *time.Timer
	skipped uint64 // those before it
}

// Hold takes v, of which there are too many: it has a record by Lateness, or is counted by
// that of one that is newer.
func (s *Surplus[T]) Hold(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		s.skipped++
	} else {
		s.late = time.AfterFunc(Lateness, s.Flush)
	}
	s.last = &v
}

// Tell records v, and counts all before it.
func (s *Surplus[T]) Tell(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		s.skipped++
	}
	s.record(v)
}

// Flush records the last one, if it has no record.
func (s *Surplus[T]) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		s.record(*s.last)
	}
}

// record is for who holds s.mu.
func (s *Surplus[T]) record(v T) {
	skipped := s.skipped
	if s.last != nil {
		s.late.Stop()
	}
	s.last, s.skipped = nil, 0
	s.Record(v, skipped)
}
