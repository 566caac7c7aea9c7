// Package codex is an executor of Codex CLI: Codex runs its commands and works on its files
// through it, over standard input and output, and so in a sandbox.
package codex

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxLine bounds a message of Codex, such as one with the content of a file, in bytes.
const maxLine = 64 << 20

// maxWaiting is how many calls for files may wait for those before them.
const maxWaiting = 64

// Options say where an executor runs its commands.
type Options struct {
	Client *api.Client
	// Spec is that of the sandbox, which is made unless it is there. Its workspace has the
	// same path inside and on the host.
	Spec *caissonv1.SandboxSpec
}

// server is the executor of one Codex.
type server struct {
	out       output
	boxes     boxes
	processes processes
	files     chan func() // one after the other, as Codex sent them
	waiting   sync.WaitGroup
	end       context.CancelFunc

	asked, ready bool // initialize has come, initialized has come
}

// later is the part of a call that others need not wait for.
type later func() (any, error)

// handler answers a call.
type handler func(*server, context.Context, json.RawMessage) (any, error)

// on is a handler of calls with the parameters P.
func on[P any](h func(*server, context.Context, P) (any, error)) handler {
	return func(s *server, ctx context.Context, raw json.RawMessage) (any, error) {
		var params P
		if err := json.Unmarshal(raw, &params); err != nil {
			return nil, refuse(codeParams, "%v", err)
		}
		return h(s, ctx, params)
	}
}

var handlers = map[string]handler{
	"process/start":      on((*server).startProcess),
	"process/read":       on((*server).readProcess),
	"process/write":      on((*server).writeProcess),
	"process/signal":     on((*server).signalProcess),
	"process/terminate":  on((*server).terminateProcess),
	"fs/getMetadata":     on((*server).getMetadata),
	"fs/readFile":        on((*server).readFile),
	"fs/writeFile":       on((*server).writeFile),
	"fs/createDirectory": on((*server).createDirectory),
	"fs/readDirectory":   on((*server).readDirectory),
	"fs/canonicalize":    on((*server).canonicalize),
	"fs/remove":          on((*server).remove),
	"fs/copy":            on((*server).copyFile),
	"fs/walk":            on((*server).walk),
}

// Serve answers Codex until r ends or ctx does. Then it kills the commands that run, and
// returns when they have ended. The sandbox stays.
func Serve(ctx context.Context, o Options, r io.Reader, w io.Writer) error {
	ctx, end := context.WithCancel(ctx)
	s := &server{out: output{w: w}, boxes: boxes{client: o.Client, spec: o.Spec}, files: make(chan func(), maxWaiting), end: end}
	s.waiting.Go(func() { _, _ = s.boxes.open(ctx, variant{}) }) // a call that needs it tells why it failed
	s.waiting.Go(func() {
		for {
			select {
			case f := <-s.files:
				f()
			case <-ctx.Done():
				return
			}
		}
	})
	lines := make(chan error, 1)
	go func() { lines <- s.listen(ctx, r) }()
	var err error
	select {
	case err = <-lines:
	case <-ctx.Done():
	}
	end()
	s.waiting.Wait()
	return err
}

// listen answers line after line.
func (s *server) listen(ctx context.Context, r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		req, err := parse(lines.Bytes())
		if err != nil {
			s.answer(noID, nil, err)
			continue
		}
		s.take(ctx, req)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		err := fmt.Errorf("a message is longer than %d bytes", maxLine)
		s.answer(noID, nil, refuse(codeRequest, "%v", err))
		return err
	}
	return lines.Err()
}

// answer sends the outcome of a call. A Codex that reads no more ends the session.
func (s *server) answer(id json.RawMessage, result any, err error) {
	r := response{ID: id, Result: result}
	if err != nil {
		r.Result, r.Error = nil, wired(err)
	}
	if errors.Is(err, sbxerr.NotFound) {
		s.boxes.forget() // the next call makes another
	}
	if s.out.send(r) != nil {
		s.end()
	}
}

// take begins with one message. Calls for files are done one after the other.
func (s *server) take(ctx context.Context, req request) {
	if req.ID == nil {
		s.ready = s.ready || s.asked && req.Method == "initialized"
		return
	}
	if req.Method == "initialize" {
		s.initialize(ctx, req)
		return
	}
	h := handlers[req.Method]
	switch {
	case !s.ready:
		s.answer(req.ID, nil, refuse(codeRequest, "%s came before initialize and initialized", req.Method))
		return
	case h == nil:
		s.answer(req.ID, nil, refuse(codeMethod, "this executor has no method %.100q", req.Method))
		return
	}
	if strings.HasPrefix(req.Method, "fs/") {
		select {
		case s.files <- func() { s.reply(ctx, req, h) }:
		case <-ctx.Done():
		}
		return
	}
	s.reply(ctx, req, h)
}

func (s *server) reply(ctx context.Context, req request, h handler) {
	result, err := h(s, ctx, req.Params)
	if f, ok := result.(later); ok && err == nil {
		s.waiting.Go(func() {
			result, err := f()
			s.answer(req.ID, result, err)
		})
		return
	}
	s.answer(req.ID, result, err)
}

// initialize waits for the sandbox. Where there is none Codex gets no error: it would go
// on without an executor, and each command tells why it cannot run.
func (s *server) initialize(ctx context.Context, req request) {
	var params struct{ ResumeSessionID *string }
	err := json.Unmarshal(req.Params, &params)
	switch {
	case err != nil:
		s.answer(req.ID, nil, refuse(codeParams, "%v", err))
		return
	case s.asked:
		s.answer(req.ID, nil, refuse(codeRequest, "this session is initialized"))
		return
	case params.ResumeSessionID != nil:
		s.answer(req.ID, nil, refuse(codeRequest, "there is no session %.100q", *params.ResumeSessionID))
		return
	}
	s.asked = true
	shell := "/bin/sh"
	if b, err := s.boxes.open(ctx, variant{}); err == nil {
		shell = b.shell
	}
	s.answer(req.ID, map[string]any{"sessionId": "1", "environmentInfo": map[string]any{
		"shell": map[string]string{"name": path.Base(shell), "path": shell}, "cwd": uriOf(s.boxes.workspace()), "platformOs": "linux", "tempDir": "file:///tmp",
	}}, nil)
}
