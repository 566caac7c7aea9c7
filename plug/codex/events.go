package codex

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxKept bounds the output of a process that process/read can return: in bytes, with those
// that keeping it takes.
const maxKept = 1 << 20

// maxChunk is the most output in one event, in bytes.
const maxChunk = 8 << 10

// chunk is a part of the output.
type chunk struct {
	Seq    int64  `json:"seq"`
	Stream string `json:"stream"`
	Chunk  []byte `json:"chunk"`
}

// cost is what keeping a chunk takes, in bytes.
func (c chunk) cost() int { return len(c.Chunk) + 64 }

// events are those of a process. They are numbered from 1 without a hole, and Codex gets
// each. The last are kept: all that it may not have read before its connection broke.
type events struct {
	ctx     context.Context //nolint:containedctx // the life of the process
	id      string
	current func() *conn

	mu        sync.Mutex
	conn      *conn // has all since confirmed; nil until Codex has read what it missed
	confirmed int64 // the last number that Codex has
	pending   int   // cost of those of kept that it may not have
	last      int64
	kept      []chunk
	size      int   // cost of kept
	lost      int64 // the last number that is kept no more
	exitCode  *int32
	closed    bool
	changed   chan struct{} // closed with the next event
}

func newEvents(ctx context.Context, id string, current func() *conn) *events {
	return &events{ctx: ctx, id: id, current: current, conn: current(), changed: make(chan struct{})}
}

// next counts and tells an event. mu is held.
func (e *events) next(method string, params map[string]any) {
	e.last++
	params["processId"], params["seq"] = e.id, e.last
	if c := e.current(); c != nil {
		_ = c.send(notification{method, params}) // else Codex reads it when it is back
	}
	e.wake()
}

// wake is for those that wait for a change. mu is held.
func (e *events) wake() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// detach is for a connection that was lost, with some of what was sent.
func (e *events) detach() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conn = nil
	e.wake()
}

// attach is for a new connection. Where Codex may have missed something, it has to read first.
func (e *events) attach(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.confirmed == e.last {
		e.conn = c
		e.wake()
	}
}

// confirm notes that Codex has all events up to a number. mu is held.
func (e *events) confirm(seq int64) {
	e.confirmed, e.pending = max(e.confirmed, seq), 0
	for _, c := range slices.Backward(e.kept) {
		if c.Seq <= e.confirmed {
			break
		}
		e.pending += c.cost()
	}
	e.wake()
}

// flow waits until Codex has confirmed so much that no event is lost where the next ones
// are kept. mu is held.
func (e *events) flow() {
	for e.pending > maxKept/2 && e.ctx.Err() == nil {
		c, seq, changed := e.conn, e.last, e.changed
		e.mu.Unlock()
		confirmed := c != nil && c.confirm() == nil
		if !confirmed {
			select {
			case <-changed:
			case <-e.ctx.Done():
			}
		}
		e.mu.Lock()
		if confirmed && c == e.conn {
			e.confirm(seq)
		}
	}
}

func (e *events) output(stream string, p []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(p) > 0 {
		e.flow()
		part := append([]byte(nil), p[:min(len(p), maxChunk)]...)
		p = p[len(part):]
		e.next("process/output", map[string]any{"stream": stream, "chunk": part})
		c := chunk{e.last, stream, part}
		e.kept, e.size, e.pending = append(e.kept, c), e.size+c.cost(), e.pending+c.cost()
		for e.size > maxKept {
			e.lost, e.size = e.kept[0].Seq, e.size-e.kept[0].cost()
			e.kept = e.kept[1:]
		}
	}
}

// exit tells the end of the process. sandboxDenied is always false: it has Codex offer to
// run the command without the sandbox, which this executor never does.
func (e *events) exit(code int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exitCode = &code
	e.next("process/exited", map[string]any{"exitCode": code, "sandboxDenied": false})
}

// close tells that there is no more output.
func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.next("process/closed", map[string]any{})
}

func (e *events) exited() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exitCode != nil
}

// ended reports whether there is no more output.
func (e *events) ended() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// readResult is the answer to process/read.
type readResult struct {
	Chunks        []chunk `json:"chunks"`
	NextSeq       int64   `json:"nextSeq"`
	Exited        bool    `json:"exited"`
	ExitCode      *int32  `json:"exitCode"`
	Closed        bool    `json:"closed"`
	Failure       *string `json:"failure"`
	SandboxDenied bool    `json:"sandboxDenied"`

	sent func(*conn) // is called when it was sent
}

// read returns what came after a number: at most limit bytes, but one event at least.
// Where there is nothing it waits.
func (e *events) read(ctx context.Context, after int64, limit int, wait time.Duration) (readResult, error) {
	timeout := time.After(wait)
	for {
		e.mu.Lock()
		r, err := e.after(after, limit)
		changed := e.changed
		e.mu.Unlock()
		if err != nil || len(r.Chunks) > 0 || r.Exited || wait <= 0 {
			return r, err
		}
		select {
		case <-changed:
		case <-timeout:
			wait = 0
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// after is what came after a number. mu is held.
func (e *events) after(after int64, limit int) (readResult, error) {
	r := readResult{
		Chunks: []chunk{}, NextSeq: e.last + 1, Exited: e.exitCode != nil, ExitCode: e.exitCode, Closed: e.closed,
		sent: func(c *conn) { e.caughtUp(c, after) },
	}
	if after < e.lost {
		return r, refuse(codeRequest, "the output of %s up to number %d is no longer kept", e.id, e.lost)
	}
	for _, c := range e.kept {
		switch {
		case c.Seq <= after:
			continue
		case len(r.Chunks) > 0 && len(c.Chunk) > limit:
			r.NextSeq, r.sent = c.Seq, func(*conn) {}
			return r, nil
		}
		r.Chunks, limit = append(r.Chunks, c), limit-len(c.Chunk)
	}
	return r, nil
}

// caughtUp is for a Codex that had the events up to a number, and was sent the others.
func (e *events) caughtUp(c *conn, after int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current() == c {
		e.conn = c
		e.confirm(min(after, e.last))
	}
}

// stream is one of the streams of a process, as a writer.
type stream struct {
	*events
	name string
}

// Write implements io.Writer.
func (s stream) Write(p []byte) (int, error) {
	s.output(s.name, p)
	return len(p), nil
}

// Skip implements [api.Skipper].
func (s stream) Skip(n int64) error {
	s.output(s.name, fmt.Appendf(nil, "\n[caisson: %d bytes of the output are lost]\n", n))
	return nil
}
