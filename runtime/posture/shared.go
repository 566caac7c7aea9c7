package posture

import "sync"

// shared lets those who ask at the same time share one reading. It keeps none: whoever
// asks gets a reading that began after that, so it is never older than the question.
type shared[T any] struct {
	read func() (T, error)

	mu   sync.Mutex
	next *reading[T] // has not begun yet; nil: nobody waits for one
	turn sync.Mutex  // of the reading that is under way
}

type reading[T any] struct {
	once  sync.Once
	value T
	err   error
}

// get joins the reading that begins next. What it returns is others' too.
func (s *shared[T]) get() (T, error) {
	s.mu.Lock()
	if s.next == nil {
		s.next = new(reading[T])
	}
	r := s.next
	s.mu.Unlock()
	r.once.Do(func() {
		s.turn.Lock() // whoever comes meanwhile joins r
		defer s.turn.Unlock()
		s.mu.Lock()
		s.next = nil // and whoever comes from now on needs a later one
		s.mu.Unlock()
		r.value, r.err = s.read()
	})
	return r.value, r.err
}
