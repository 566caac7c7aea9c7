package mcp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const (
	// maxMessage bounds a message, in bytes.
	maxMessage = sdk.DefaultMaxLineLength
	// answerTime is how long calls have to be answered when there is no more input.
	answerTime = time.Minute
	// hangUpTime is how long after the client has gone it is noticed then.
	hangUpTime = 200 * time.Millisecond
)

// maxBatch bounds the messages of one line.
const maxBatch = 256

// firstUnbatched is the first version of the protocol without batches.
const firstUnbatched = "2025-06-18"

// Stdio is the transport over standard input and output. The transport of the SDK ends a
// session at a line that is no message, and forgets calls at the end of the input. So it gets
// messages alone here: a line that is none has an error for an answer, and the end waits until
// all that was received is answered.
type Stdio struct {
	In  io.Reader
	Out io.Writer
}

// Connect implements sdk.Transport.
func (t *Stdio) Connect(ctx context.Context) (sdk.Connection, error) {
	r, w := io.Pipe()
	l := &lineFilter{in: bufio.NewReaderSize(t.In, 64<<10), out: t.Out, messages: w, open: map[any]bool{}}
	l.told = sync.NewCond(&l.mu)
	go func() { _ = w.CloseWithError(l.run()) }() // never fails
	return (&sdk.IOTransport{Reader: r, Writer: l, MaxLineLength: -1}).Connect(ctx)
}

// lineFilter reads lines, passes on those that are messages, and writes what is answered.
type lineFilter struct {
	in       *bufio.Reader
	messages *io.PipeWriter

	mu      sync.Mutex // of what follows, and of a line that is written
	out     io.Writer
	open    map[any]bool  // calls without an answer, by ID: a string or a number
	ending  chan struct{} // closed when there are none; nil: there is more input
	version string        // of the protocol; empty before the first answer
	told    *sync.Cond    // of an answer, and of the end of the session
	closed  bool
}

// run returns at the end of the input, when what was received is answered.
func (l *lineFilter) run() error {
	for {
		line, err := l.read()
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := l.take(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			l.finish()
		}
		if err != nil {
			return err
		}
	}
}

// read returns the next line. One that is too long is answered, and returned empty.
func (l *lineFilter) read() (line []byte, err error) {
	var id idFinder
	size := 0
	for {
		part, err := l.in.ReadSlice('\n')
		if size += len(part); size <= maxMessage {
			line = append(line, part...)
		} else {
			if line != nil {
				id.feed(line)
			}
			line = nil
			id.feed(part)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if size > maxMessage {
			err = errors.Join(err, l.refuse(id.found(), jsonrpc.CodeInvalidRequest, fmt.Errorf("the line is longer than %d bytes", maxMessage)))
		}
		return line, err
	}
}

// take passes a line on, or answers it.
func (l *lineFilter) take(line []byte) error {
	if !json.Valid(line) {
		var id idFinder
		id.feed(line)
		var said any
		return l.refuse(id.found(), jsonrpc.CodeParseError, fmt.Errorf("the line is not JSON (%w)", json.Unmarshal(line, &said)))
	}
	if err := l.note(line); err != nil {
		var id idFinder
		id.feed(line)
		return l.refuse(id.found(), jsonrpc.CodeInvalidRequest, err)
	}
	_, err := l.messages.Write(append(line, '\n'))
	return err
}

// note remembers the calls of a line, which is JSON. An error is a line that is no message.
func (l *lineFilter) note(line []byte) error {
	if line[0] == '[' && countElements(line, maxBatch) > maxBatch {
		return fmt.Errorf("the line is an array of more than %d messages", maxBatch)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	texts, batch := elements(line)
	if batch {
		for l.version == "" && len(l.open) > 0 && !l.closed {
			l.told.Wait() // whether there are batches, the first answer says
		}
		if len(texts) == 0 || l.version >= firstUnbatched {
			return errors.New("the line is an array, and no message of the protocol")
		}
	}
	calls := map[any]bool{}
	for _, text := range texts {
		m, err := jsonrpc.DecodeMessage(text)
		if err != nil {
			return fmt.Errorf("the line is no JSON-RPC 2.0 message: %w", err)
		}
		r, is := m.(*jsonrpc.Request)
		switch {
		case !is:
		case r.Method == "notifications/cancelled":
			defer l.forget(canceled(r))
		case !r.ID.IsValid():
		case batch && (calls[r.ID.Raw()] || l.open[r.ID.Raw()]):
			return fmt.Errorf("the ID %v is that of another call", r.ID.Raw())
		case r.Method != "subscriptions/listen": // which is answered when the session ends
			calls[r.ID.Raw()] = true
		}
	}
	for id := range calls {
		l.open[id] = true
	}
	return nil
}

// countElements counts the elements of an array, which is JSON, until there are more than most.
// One that is empty counts as one.
func countElements(array []byte, most int) (n int) {
	depth, quoted := 0, false
	for i := 0; i < len(array) && n < most; i++ {
		switch c := array[i]; {
		case quoted && c == '\\':
			i++ // what is escaped
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 1:
			n++
		}
	}
	return n + 1
}

// elements are the messages of a line, which is JSON, and of a batch.
func elements(line []byte) (texts []json.RawMessage, batch bool) {
	if line[0] != '[' {
		return []json.RawMessage{line}, false
	}
	_ = json.Unmarshal(line, &texts) // it is an array
	return texts, true
}

// canceled is the ID of the call that is not to be answered any more.
func canceled(r *jsonrpc.Request) jsonrpc.ID {
	var p struct {
		ID any `json:"requestId"`
	}
	_ = json.Unmarshal(r.Params, &p) // the server refuses it
	id, _ := jsonrpc.MakeID(p.ID)
	return id
}

// forget is told of a call that is over. mu is held.
func (l *lineFilter) forget(id jsonrpc.ID) {
	l.told.Broadcast()
	delete(l.open, id.Raw())
	if len(l.open) == 0 && l.ending != nil {
		close(l.ending)
		l.ending = nil
	}
}

// Write implements io.Writer: it is given a line, with answers or another message.
func (l *lineFilter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.out.Write(b)
	if err != nil {
		return n, err
	}
	texts, _ := elements(b)
	for _, text := range texts {
		m, _ := jsonrpc.DecodeMessage(text) // of our own
		if r, is := m.(*jsonrpc.Response); is {
			l.agree(r)
			l.forget(r.ID)
		}
	}
	return n, err
}

// agree notes the version of the protocol from the first answer, which tells it in those that
// have batches.
func (l *lineFilter) agree(r *jsonrpc.Response) {
	if l.version != "" {
		return
	}
	var told struct{ ProtocolVersion string }
	_ = json.Unmarshal(r.Result, &told) // an error tells none
	l.version = cmp.Or(told.ProtocolVersion, firstUnbatched)
}

// Close implements io.Closer.
func (l *lineFilter) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.told.Broadcast()
	return nil
}

// finish waits until all calls are answered, for as long as somebody reads that.
func (l *lineFilter) finish() {
	l.mu.Lock()
	done := make(chan struct{})
	if l.ending = done; len(l.open) == 0 {
		close(done)
		l.ending = nil
	}
	l.mu.Unlock()
	late := time.NewTimer(answerTime)
	defer late.Stop()
	look := time.NewTicker(hangUpTime)
	defer look.Stop()
	for {
		select {
		case <-done:
			return
		case <-late.C:
			return
		case <-look.C:
			if hungUp(l.out) {
				return
			}
		}
	}
}

// hungUp reports whether out is a pipe or a socket that nobody reads (poll(2), POLLERR).
func hungUp(out io.Writer) bool {
	f, is := out.(*os.File)
	if !is {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// refuse answers a line that is no message; an empty ID is unknown.
func (l *lineFilter) refuse(id json.RawMessage, code int64, why error) error {
	if id == nil {
		id = json.RawMessage("null")
	}
	const remedy = "send one JSON-RPC 2.0 message on each line"
	text, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": fmt.Sprintf("%s: %v: %s", sbxerr.APIUsage, why, remedy)},
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.out.Write(append(text, '\n'))
	return err
}
