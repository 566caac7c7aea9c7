package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/server/slow"
	"github.com/caisson-run/caisson/server/strictjson"
)

// readTimeout is how long the first message of a caller may take to come. A caller that
// sends a stream may say nothing for ever between two messages, and has for each of
// them the time that it has to read: it may be suspended.
const readTimeout = 30 * time.Second

// How many bytes of messages that are not decoded yet the daemon holds, and for whom.
// Their buffers, with the garbage of buffers that grew, take up to eight times as much:
// 96 MiB. 48 uploads of one user fit at once, in messages of 128 KiB.
const (
	maxUndecoded     = 12 << 20
	maxUndecodedUser = 7 << 20              // of one user, or one sandbox
	maxUndecodedBox  = 8 << 20              // of all sandboxes together
	maxUndecodedRest = maxUndecoded - 2<<20 // of all but root
	spareUndecoded   = 2 << 20              // of the last, for callers that hold little
	spareUndecodedIn = 1 << 20              // of all sandboxes, for those that hold little
)

// little is what a caller may hold to have the spare part of a bound too, in bytes.
const little = 256 << 10

// keptFactor is how much more of what is decoded is held, while calls use it.
const keptFactor = 4

// openCost is counted for a call before its first message is there: about what the
// server needs for it.
const openCost = 16 << 10

// intake bounds what callers send: a message must come soon, and those that are on
// their way must fit into the daemon.
type intake struct {
	timeout time.Duration // for the first message
	later   time.Duration // for each other one
	coming  *amounts      // bytes that are not decoded
	kept    *amounts      // bytes that are, and in use
}

func newIntake(timeout, later time.Duration) *intake {
	return &intake{timeout: cmp.Or(timeout, readTimeout), later: cmp.Or(later, slow.Timeout), coming: newAmounts(little), kept: newAmounts(little)}
}

func undecodedOf(ctx context.Context) []bound {
	all, rest := bound{"all", maxUndecoded, 0}, bound{"not root", maxUndecodedRest, spareUndecoded}
	c, known := peer.FromContext(ctx)
	switch own := (bound{c.String(), maxUndecodedUser, 0}); {
	case !known || c.IsHostRoot():
		return []bound{all}
	case c.Sandbox != "":
		return []bound{own, {"sandboxes", maxUndecodedBox, spareUndecodedIn}, rest, all}
	default:
		return []bound{own, rest, all}
	}
}

// wider is bounds for what is decoded.
func wider(bounds []bound) []bound {
	wide := slices.Clone(bounds)
	for i := range wide {
		wide[i].most *= keptFactor
		wide[i].spare *= keptFactor
	}
	return wide
}

// serve puts the bounds on the body of each request for h.
func (i *intake) serve(h http.Handler) http.Handler {
	writer := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			h.ServeHTTP(w, r)
			return
		}
		b := &incoming{ReadCloser: r.Body, intake: i, bounds: undecodedOf(r.Context()), control: http.NewResponseController(w), http1: r.ProtoMajor == 1}
		defer b.end()
		if err := b.begin(); err != nil {
			_ = writer.Write(w, r, fail(err)) // who does not read it knows no better
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), incomingKey{}, b))
		r.Body = b
		h.ServeHTTP(w, r)
	})
}

type incomingKey struct{}

// incoming is the body of a request.
type incoming struct {
	io.ReadCloser
	intake  *intake
	bounds  []bound
	control *http.ResponseController
	http1   bool

	mu      sync.Mutex
	held    int // bytes that came
	kept    int // bytes that are decoded
	timer   *time.Timer
	limit   time.Duration // of the message that is due
	awaited bool          // the timer runs: a message is due
	late    bool          // it rang
	read    bool          // there is no more of the body
	ended   bool          // and nobody may touch the response any more
}

func (b *incoming) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.countLocked(openCost); err != nil {
		return err
	}
	b.awaited = true
	b.limit = b.intake.timeout
	b.timer = time.AfterFunc(b.limit, b.giveUp)
	return nil
}

func (b *incoming) countLocked(n int) error {
	if !b.intake.coming.take(b.bounds, n) {
		return errTooMuch("in flight")
	}
	b.held += n
	return nil
}

func errTooMuch(where string) error {
	return sbxerr.WithRemedy(sbxerr.Busy, "server.read", fmt.Errorf("too many large requests are %s for this caller, or for all", where),
		"retry later, or send fewer large requests at once")
}

// Read implements [io.Reader].
func (b *incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && b.held < maxMessage && !b.ended { // the rest of one that is too large is dropped
		if err := b.countLocked(n); err != nil {
			return 0, fail(err)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		b.read = true
		b.restLocked()
	case err != nil && b.late:
		err = fail(sbxerr.New(sbxerr.Deadline, "server.read", "the request did not come whole within %v", b.limit))
	case n > 0 && !b.awaited:
		b.awaited = true
		b.limit = b.intake.later
		b.timer.Reset(b.limit)
	}
	return n, err
}

// decoded says that what came is a message now. A large one counts until it is
// forgotten: it may hold the input of a command that reads none.
func (b *incoming) decoded() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restLocked()
	size := b.held
	b.intake.coming.give(b.bounds, size)
	b.held = 0
	if size < strictjson.SmallMessage || b.ended {
		return nil
	}
	if !b.intake.kept.take(wider(b.bounds), size) {
		return errTooMuch("in use")
	}
	b.kept += size
	return nil
}

// forget says that nobody needs what was decoded any more.
func (b *incoming) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept > 0 {
		b.intake.kept.give(wider(b.bounds), b.kept)
		b.kept = 0
	}
}

func (b *incoming) restLocked() {
	if b.timer != nil && b.awaited {
		b.timer.Stop()
		b.awaited = false
	}
}

// giveUp ends the reading, unless the timer rang for what has come by now.
func (b *incoming) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.awaited && !b.ended {
		b.late = true
		_ = b.control.SetReadDeadline(time.Unix(1, 0)) // every server that there is can
	}
}

// end is the end of the handler. An HTTP/1 server then reads what is left of a
// body, to go on with the connection: that has its time too.
func (b *incoming) end() {
	b.forget()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.restLocked()
	b.intake.coming.give(b.bounds, b.held)
	b.held = 0
	if b.http1 && !b.read && !b.late {
		_ = b.control.SetReadDeadline(time.Now().Add(b.intake.timeout))
	}
}
