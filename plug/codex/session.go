package codex

import (
	"context"
	"crypto/rand"
	"sync"
	"time"
)

// keepDetached is how long a session lasts without a connection. Codex dials for 25 s.
const keepDetached = 30 * time.Second

// session is the executor of one Codex. It outlives a connection that is lost.
type session struct {
	*executor
	id        string
	processes processes
	files     chan func() // one after the other, as Codex sent them
	waiting   sync.WaitGroup
	ctx       context.Context //nolint:containedctx // the life of the session, not of a call
	end       context.CancelFunc

	mu     sync.Mutex
	holder *conn       // the last that initialized the session
	conn   *conn       // gets the events; nil until initialized has come
	expiry *time.Timer // ends the session while nobody holds it
}

// begin makes a session.
func (x *executor) begin(ctx context.Context) *session {
	ctx, end := context.WithCancel(ctx)
	s := &session{executor: x, id: rand.Text(), files: make(chan func(), maxWaiting), ctx: ctx, end: end}
	x.mu.Lock()
	x.sessions[s.id] = s
	x.mu.Unlock()
	x.running.Go(func() {
		for ctx.Err() == nil {
			select {
			case f := <-s.files:
				f()
			case <-ctx.Done():
			}
		}
		s.waiting.Wait()
		x.mu.Lock()
		delete(x.sessions, s.id)
		x.mu.Unlock()
	})
	return s
}

// find returns nil where there is no such session.
func (x *executor) find(id string) *session {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sessions[id]
}

// hold gives the session to a connection, unless it has ended. An older connection hangs,
// and is closed.
func (s *session) hold(c *conn) bool {
	s.mu.Lock()
	old := s.holder
	ended := s.ctx.Err() != nil
	if !ended {
		s.holder, s.conn = c, nil
	}
	if s.expiry != nil {
		s.expiry.Stop()
	}
	s.mu.Unlock()
	if old != nil && !ended {
		old.close()
		s.processes.each((*events).detach)
	}
	return !ended
}

// attach has the events sent over a connection that holds the session.
func (s *session) attach(c *conn) {
	s.mu.Lock()
	if s.holder == c {
		s.conn = c
	}
	s.mu.Unlock()
	s.processes.each(func(e *events) { e.attach(c) })
}

// release is for a connection that has ended.
func (s *session) release(c *conn) {
	s.mu.Lock()
	held := s.holder == c
	if held {
		s.holder, s.conn = nil, nil
		s.expiry = time.AfterFunc(s.detached, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.holder == nil {
				s.end()
			}
		})
	}
	s.mu.Unlock()
	if held {
		s.processes.each((*events).detach)
	}
}

// current is the connection that gets the events; nil where there is none.
func (s *session) current() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}
