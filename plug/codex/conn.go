package codex

import (
	"context"
	"encoding/json"
	"errors"
	"path"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// transport carries messages.
type transport interface {
	read() ([]byte, error)
	write([]byte) error
	// confirm returns when Codex has read all that was written before.
	confirm() error
	close()
}

// conn is a connection of a Codex.
type conn struct {
	transport
	*executor
	session *session // nil before initialize
	ready   bool     // initialized has come
}

// serve answers message after message until the connection ends.
func (x *executor) serve(ctx context.Context, t transport) error {
	c := &conn{transport: t, executor: x}
	defer func() {
		if c.session != nil {
			c.session.release(c)
		}
	}()
	for {
		message, err := t.read()
		if refusal := new(wireError); errors.As(err, &refusal) {
			c.answer(noID, nil, err)
		}
		if err != nil {
			return err
		}
		req, err := parse(message)
		if err != nil {
			c.answer(noID, nil, err)
			continue
		}
		c.take(ctx, req)
	}
}

// send writes a message. A Codex that reads no more loses its connection.
func (c *conn) send(message any) error {
	b, err := json.Marshal(message)
	if err == nil {
		err = c.write(b)
	}
	if err != nil {
		c.close()
	}
	return err
}

// answer sends the outcome of a call.
func (c *conn) answer(id json.RawMessage, result any, err error) {
	r := response{ID: id, Result: result}
	if err != nil {
		r.Result, r.Error = nil, wired(err)
	}
	if errors.Is(err, sbxerr.NotFound) {
		c.boxes.forget() // the next call makes another
	}
	sent := c.send(r) == nil
	if read, ok := result.(readResult); ok && sent && err == nil {
		read.sent(c)
	}
}

// take begins with one message. Calls for files are done one after the other.
func (c *conn) take(ctx context.Context, req request) {
	h := handlers[req.Method]
	switch {
	case req.ID == nil:
		if req.Method == "initialized" && c.session != nil {
			c.ready = true
			c.session.attach(c)
		}
	case req.Method == "initialize":
		c.answerInitialize(ctx, req)
	case !c.ready:
		c.answer(req.ID, nil, refuse(codeRequest, "%s came before initialize and initialized", req.Method))
	case h == nil:
		c.answer(req.ID, nil, refuse(codeMethod, "this executor has no method %.100q", req.Method))
	case strings.HasPrefix(req.Method, "fs/"):
		select {
		case c.session.files <- func() { c.reply(req, h) }:
		case <-c.session.ctx.Done():
		}
	default:
		c.reply(req, h)
	}
}

func (c *conn) reply(req request, h handler) {
	result, err := h(c.session, c.session.ctx, req.Params)
	if f, ok := result.(later); ok && err == nil {
		c.session.waiting.Go(func() {
			result, err := f()
			c.answer(req.ID, result, err)
		})
		return
	}
	c.answer(req.ID, result, err)
}

// answerInitialize waits for the sandbox. Where there is none Codex gets no error: it would
// go on without an executor, and each command tells why it cannot run.
func (c *conn) answerInitialize(ctx context.Context, req request) {
	var params struct{ ResumeSessionID *string }
	if err := json.Unmarshal(req.Params, &params); err != nil {
		c.answer(req.ID, nil, refuse(codeParams, "%v", err))
		return
	}
	if c.session != nil {
		c.answer(req.ID, nil, refuse(codeRequest, "this session is initialized"))
		return
	}
	var s *session
	if params.ResumeSessionID == nil {
		s = c.begin(ctx)
	} else {
		s = c.find(*params.ResumeSessionID)
	}
	if s == nil || !s.hold(c) {
		c.answer(req.ID, nil, refuse(codeRequest, "this executor has no such session: it has ended"))
		return
	}
	c.session = s
	shell := "/bin/sh"
	if b, err := c.boxes.open(ctx, variant{}); err == nil {
		shell = b.shell
	}
	c.answer(req.ID, map[string]any{"sessionId": s.id, "environmentInfo": map[string]any{
		"shell": map[string]string{"name": path.Base(shell), "path": shell}, "cwd": uriOf(c.boxes.workspace()), "platformOs": "linux", "tempDir": "file:///tmp",
	}}, nil)
}
