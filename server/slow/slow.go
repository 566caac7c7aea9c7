// Package slow ends calls whose callers stay connected and do not read.
package slow

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/api/sbxerr"
)

const (
	// Timeout is how long a caller may take no byte of its answer.
	Timeout = 30 * time.Second
	// writePiece is what it must take in that time, in bytes: a caller that
	// takes a little now and then does not hold a call for ever.
	writePiece = 64 << 10
)

// patient are the calls that wait for a caller as long as it is connected: so does the
// command whose output they carry, as with docker run.
var patient = map[string]bool{
	caissonv1connect.SandboxServiceRunProcedure:     true,
	caissonv1connect.SandboxServiceLogsProcedure:    true,
	caissonv1connect.ExecServiceStartProcedure:      true,
	caissonv1connect.ExecServiceAttachProcedure:     true,
	caissonv1connect.NetworkServiceForwardProcedure: true,
}

// Bound ends calls but the patient ones whose caller stays connected and does not read. A
// write that makes no progress for the timeout (0 is Timeout) fails with
// [sbxerr.Canceled], and the request's context ends with that as its cause.
// Where even the connection takes nothing, the server has to close it (WriteByteTimeout).
// procedure says which call a request is for, where its path does not.
func Bound(h http.Handler, timeout time.Duration, procedure func(*http.Request) string) http.Handler {
	if timeout == 0 {
		timeout = Timeout
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		b := &boundWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout, cancel: cancel}
		if err := b.control.SetWriteDeadline(time.Time{}); err != nil { // who cannot stop a write must not begin one
			http.Error(w, "no write deadline", http.StatusInternalServerError)
			return
		}
		defer b.release(r.Context())
		if patient[r.URL.Path] || patient[procedure(r)] {
			h.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(b, r.WithContext(ctx))
	})
}

// boundWriter watches every write. The deadlines of [http.ResponseController]
// alone would not do: that of an HTTP/2 stream ends it also while nothing is
// written, and moving it for each message costs two more of the server's loop.
type boundWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	cancel  context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer // nil before the first write
	until time.Time   // when the write under way has to be over; zero when there is none
	slow  error       // why the caller was given up
}

// Write implements [http.ResponseWriter].
func (b *boundWriter) Write(p []byte) (n int, err error) {
	for {
		piece := p[n:min(len(p), n+writePiece)]
		err := b.bounded(func() error {
			m, err := b.ResponseWriter.Write(piece)
			n += m
			return err
		})
		if err != nil || n >= len(p) {
			return n, err
		}
	}
}

// Flush implements [http.Flusher].
func (b *boundWriter) Flush() { _ = b.FlushError() } // a broken stream fails the next write

// FlushError is Flush for [http.ResponseController].
func (b *boundWriter) FlushError() error { return b.bounded(b.control.Flush) }

// Unwrap is for [http.ResponseController].
func (b *boundWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *boundWriter) bounded(write func() error) error {
	if err := b.begin(); err != nil {
		return err
	}
	err := write()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer.Stop()
	b.until = time.Time{}
	if err != nil && b.slow != nil {
		return b.slow
	}
	return err
}

func (b *boundWriter) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.slow != nil {
		return b.slow
	}
	b.until = time.Now().Add(b.timeout)
	if b.timer == nil {
		b.timer = time.AfterFunc(b.timeout, b.giveUp)
	} else {
		b.timer.Reset(b.timeout)
	}
	return nil
}

// giveUp ends the call, unless the timer rang for a write that is over. It
// touches the response only during a write, when the handler cannot return.
func (b *boundWriter) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() || time.Now().Before(b.until) {
		return
	}
	b.slow = sbxerr.New(sbxerr.Canceled, "server.write", "the caller took nothing of its answer for %v", b.timeout)
	b.cancel(b.slow)
	_ = b.control.SetWriteDeadline(time.Unix(1, 0)) // it could when the call began
}

// release bounds what the server itself still writes for the call. It lifts the
// deadline when that is done.
func (b *boundWriter) release(call context.Context) {
	if call.Err() != nil { // the stream is closed
		return
	}
	_ = b.control.SetWriteDeadline(time.Now().Add(b.timeout))
}
