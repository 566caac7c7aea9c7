package codex

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// maxKept bounds the output of a process that process/read can return, in bytes.
const maxKept = 1 << 20

// maxChunk is the most output in one event, in bytes.
const maxChunk = 8 << 10

// chunk is a part of the output.
type chunk struct {
	Seq    int64  `json:"seq"`
	Stream string `json:"stream"`
	Chunk  []byte `json:"chunk"`
}

// events are those of a process. They are numbered from 1 without a hole, and Codex gets
// each. The last are kept.
type events struct {
	id     string
	notify func(method string, params any)

	mu       sync.Mutex
	last     int64
	kept     []chunk
	size     int   // of kept, in bytes
	lost     int64 // the last number that is kept no more
	exitCode *int32
	closed   bool
	changed  chan struct{} // closed with the next event
}

func newEvents(id string, notify func(string, any)) *events {
	return &events{id: id, notify: notify, changed: make(chan struct{})}
}

// next counts and tells an event. mu is held.
func (e *events) next(method string, params map[string]any) {
	e.last++
	params["processId"], params["seq"] = e.id, e.last
	e.notify(method, params)
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *events) output(stream string, p []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(p) > 0 {
		part := append([]byte(nil), p[:min(len(p), maxChunk)]...)
		p = p[len(part):]
		e.next("process/output", map[string]any{"stream": stream, "chunk": part})
		e.kept, e.size = append(e.kept, chunk{e.last, stream, part}), e.size+len(part)
		for e.size > maxKept {
			e.lost, e.size = e.kept[0].Seq, e.size-len(e.kept[0].Chunk)
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
	r := readResult{Chunks: []chunk{}, NextSeq: e.last + 1, Exited: e.exitCode != nil, ExitCode: e.exitCode, Closed: e.closed}
	if after < e.lost {
		return r, refuse(codeRequest, "the output of %s up to number %d is no longer kept", e.id, e.lost)
	}
	for _, c := range e.kept {
		switch {
		case c.Seq <= after:
			continue
		case len(r.Chunks) > 0 && len(c.Chunk) > limit:
			r.NextSeq = c.Seq
			return r, nil
		}
		r.Chunks, limit = append(r.Chunks, c), limit-len(c.Chunk)
	}
	return r, nil
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
