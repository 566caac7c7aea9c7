// Package ratelog bounds records of frequent attempts. Of the attempts that a limit
// refused, only the latest has a record, and it counts the others. So records are
// bounded and no attempt is missing from the counts.
package ratelog

import (
	"sync"
	"time"
)

// The rules of limits, as records name them.
const (
	RuleConnections = "limit of connections"
	RuleQuestions   = "limit of questions"
)

// Interval is how long the latest attempt waits for its record.
const Interval = time.Second

// Log is the log of one kind of attempts. It needs only Record.
type Log[T any] struct {
	// Record writes the record of v, after so many skipped attempts. It must not block.
	Record func(v T, skipped uint64)

	mu      sync.Mutex
	last    *T // the latest attempt, if it has no record yet
	late    *time.Timer
	skipped uint64 // attempts before it without a record
}

// Suppress delays the record of v by up to Interval. A later attempt counts v instead.
func (l *Log[T]) Suppress(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil {
		l.skipped++
	} else {
		l.late = time.AfterFunc(Interval, l.Flush)
	}
	l.last = &v
}

// Add records v at once, and counts the suppressed attempts before it.
func (l *Log[T]) Add(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil {
		l.skipped++
	}
	l.record(v)
}

// Flush records the latest attempt, if it has no record yet.
func (l *Log[T]) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil {
		l.record(*l.last)
	}
}

// record needs l.mu to be held.
func (l *Log[T]) record(v T) {
	skipped := l.skipped
	if l.last != nil {
		l.late.Stop()
	}
	l.last, l.skipped = nil, 0
	l.Record(v, skipped)
}
