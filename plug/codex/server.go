// Package codex is an executor of Codex CLI: Codex runs its commands and works on its files
// through it, over standard input and output or a websocket, and so in a sandbox.
package codex

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// maxMessage bounds a message of Codex, such as one with the content of a file, in bytes.
const maxMessage = 64 << 20

// maxWaiting is how many calls for files may wait for those before them.
const maxWaiting = 64

// Options say where an executor runs its commands.
type Options struct {
	Client *api.Client
	// Spec is that of the sandbox, which is made unless it is there. Its workspace has the
	// same path inside and on the host.
	Spec *caissonv1.SandboxSpec
	// Detached is how long a session lasts without a connection; 0 is 30 s.
	Detached time.Duration
}

// executor has the sessions of all Codexes that it serves.
type executor struct {
	boxes    boxes
	detached time.Duration

	mu       sync.Mutex
	sessions map[string]*session
	running  sync.WaitGroup // of sessions
}

// later is the part of a call that others need not wait for.
type later func() (any, error)

// handler answers a call.
type handler func(*session, context.Context, json.RawMessage) (any, error)

// on is a handler of calls with the parameters P.
func on[P any](h func(*session, context.Context, P) (any, error)) handler {
	return func(s *session, ctx context.Context, raw json.RawMessage) (any, error) {
		var params P
		if err := json.Unmarshal(raw, &params); err != nil {
			return nil, refuse(codeParams, "%v", err)
		}
		return h(s, ctx, params)
	}
}

var handlers = map[string]handler{
	"process/start":      on((*session).startProcess),
	"process/read":       on((*session).readProcess),
	"process/write":      on((*session).writeProcess),
	"process/signal":     on((*session).signalProcess),
	"process/terminate":  on((*session).terminateProcess),
	"fs/getMetadata":     on((*session).getMetadata),
	"fs/readFile":        on((*session).readFile),
	"fs/writeFile":       on((*session).writeFile),
	"fs/createDirectory": on((*session).createDirectory),
	"fs/readDirectory":   on((*session).readDirectory),
	"fs/canonicalize":    on((*session).canonicalize),
	"fs/remove":          on((*session).remove),
	"fs/copy":            on((*session).copyFile),
	"fs/walk":            on((*session).walk),
}

func newExecutor(ctx context.Context, o Options) *executor {
	x := &executor{boxes: boxes{client: o.Client, spec: o.Spec}, detached: cmp.Or(o.Detached, keepDetached), sessions: map[string]*session{}}
	x.running.Go(func() { _, _ = x.boxes.open(ctx, variant{}) }) // a call that needs it tells why it failed
	return x
}

// Serve answers Codex until r ends or ctx does. Then it kills the commands that run, and
// returns when they have ended. The sandbox stays.
func Serve(ctx context.Context, o Options, r io.Reader, w io.Writer) error {
	ctx, end := context.WithCancel(ctx)
	x := newExecutor(ctx, o)
	served := make(chan error, 1)
	go func() { served <- x.serve(ctx, newLines(r, w, end)) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	end()
	x.running.Wait()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}
