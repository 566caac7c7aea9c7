package traffic

import (
	"log/slog"
	"sync"
	"time"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/usage"
)

// Files says where what is kept of a sandbox lies. The directories are others'
// to make and to remove; where there is none, nothing is kept.
type Files struct {
	Carried func(sandbox string) string // connections that were carried
	Rest    func(sandbox string) string // all other entries, and those of earlier daemons
	Names   func(sandbox string) string
}

// Log keeps the attempts of all sandboxes. Its methods may be called at the same
// time.
type Log struct {
	files Files
	log   *slog.Logger

	observe func(Entry) // nil: nobody looks

	mu      sync.Mutex
	waiting map[string]chan struct{} // closed by the next entry
}

// New makes a Log, which opens nothing.
func New(f Files, log *slog.Logger) *Log {
	return &Log{files: f, log: log, waiting: map[string]chan struct{}{}}
}

// Attempted keeps a connection.
func (l *Log) Attempted(a attempt.Attempt) {
	l.add(a.Sandbox, entryOfAttempt(a))
}

// Arrived keeps a connection from outside.
func (l *Log) Arrived(a attempt.Arrival) { l.add(a.Sandbox, entryOfArrival(a)) }

// Used keeps a request to a route.
func (l *Log) Used(u usage.Use) { l.add(u.Sandbox, entryOfUse(u)) }

// Queried keeps a question.
func (l *Log) Queried(q lookup.Query) {
	l.add(q.Sandbox, entryOfQuery(q, time.Now()))
}

// Observe has fn called with each entry that is added. It is called before the first one
// is, and may be called on a nil Log.
func (l *Log) Observe(fn func(Entry)) {
	if l != nil {
		l.observe = fn
	}
}

func (l *Log) add(sandbox string, e Entry) {
	l.keep(sandbox, e)
	if l.observe != nil {
		e.Sandbox = sandbox
		l.observe(e)
	}
}

func (l *Log) keep(sandbox string, e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rest(sandbox)
	if e.carried() {
		r = l.carried(sandbox)
	}
	l.note(sandbox, r.add(e))
	if c, ok := l.waiting[sandbox]; ok {
		close(c)
		delete(l.waiting, sandbox)
	}
}

func (l *Log) carried(sandbox string) ring { return ring{l.files.Carried(sandbox)} }
func (l *Log) rest(sandbox string) ring    { return ring{l.files.Rest(sandbox)} }

// note logs that something of a sandbox could not be kept: its traffic goes on.
func (l *Log) note(sandbox string, err error) {
	if err != nil {
		l.log.Warn("keep traffic", "sandbox", sandbox, "err", err)
	}
}

// Next is closed when the sandbox has an entry that is not there yet.
func (l *Log) Next(sandbox string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.waiting[sandbox]
	if !ok {
		c = make(chan struct{})
		l.waiting[sandbox] = c
	}
	return c
}

// Forget wakes whoever waits for an entry of a sandbox that is gone.
func (l *Log) Forget(sandbox string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.waiting[sandbox]; ok {
		close(c)
		delete(l.waiting, sandbox)
	}
}
