package events

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/caisson-run/caisson/runtime/peer"
)

// Recorder keeps events. The line is the JSON of one event, without a newline, and only
// valid during the call. Work says that something begins with the event.
type Recorder interface {
	Record(line []byte, work bool) error
	// Required reports whether nothing may run that is not recorded.
	Required() bool
}

// Options is what a Bus is made of.
type Options struct {
	Source    string // of CloudEvents: names the daemon among those of the host
	Boot      string // names this start of the daemon in cursors
	Recorder  Recorder
	Observers []func(*Event) // called in the order of the events; they must not block
	Log       *slog.Logger
}

// Bus takes events and serves them to readers. Its methods may be called at the same
// time. A nil Bus takes events and forgets them.
type Bus struct {
	o Options

	mu   sync.Mutex
	last uint64 // number of the newest event
	kept kept
	line bytes.Buffer
	more chan struct{} // closed by the next event; nil while nobody waits
	deaf bool          // the recorder failed, and that was logged
}

// New makes a Bus.
func New(o Options) *Bus {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Bus{o: o, kept: kept{shares: map[owner]*share{}}}
}

// Emit tells of e, which has happened. The caller and the ID of the request come from ctx
// where e has none. An event that cannot be recorded is logged.
func (b *Bus) Emit(ctx context.Context, e Event) { _ = b.emit(ctx, e, false) }

// Confirm is Emit for what somebody asked for. An error means that the caller must hear of
// one: it happened, but cannot be recorded, and a record is required.
func (b *Bus) Confirm(ctx context.Context, e Event) error {
	err := b.emit(ctx, e, false)
	if err != nil && b.o.Recorder.Required() {
		return err
	}
	return nil
}

// Announce tells of e, which is about to happen. An error means that it must not: it
// cannot be recorded, and a record is required. Nobody is told of e then.
func (b *Bus) Announce(ctx context.Context, e Event) error { return b.emit(ctx, e, true) }

func (b *Bus) emit(ctx context.Context, e Event, work bool) error {
	if b == nil {
		return nil
	}
	e.complete(ctx)
	e.Data.bound()
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Time.IsZero() {
		e.Time = time.Now().Round(0).UTC()
	}
	e.ID, e.Source = b.o.Boot+"-"+strconv.FormatUint(b.last+1, 10), b.o.Source
	err := b.recordLocked(&e, work)
	if err != nil && work && b.o.Recorder.Required() {
		return err
	}
	b.last++
	b.kept.add(b.last, &e)
	for _, observe := range b.o.Observers {
		observe(&e)
	}
	if b.more != nil {
		close(b.more)
		b.more = nil
	}
	if work { // which goes on
		return nil
	}
	return err
}

func (b *Bus) recordLocked(e *Event, work bool) error {
	b.line.Reset()
	err := e.encode(&b.line)
	e.size = b.line.Len()
	if err == nil && b.o.Recorder != nil {
		err = b.o.Recorder.Record(b.line.Bytes(), work)
	}
	if err != nil && !b.deaf { // the recorder counts them
		b.o.Log.Error("record an event", "type", string(e.Type), "err", err)
	}
	b.deaf = err != nil
	return err
}

// complete adds what ctx tells of the call that led to e.
func (e *Event) complete(ctx context.Context) {
	caller, request := Asked(ctx)
	e.Data.Caller, e.Data.RequestID = cmp.Or(e.Data.Caller, caller), cmp.Or(e.Data.RequestID, request)
	e.Trace, _ = ctx.Value(traceKey{}).(string)
}

// Asked is what ctx tells of a call: its caller, and the ID of the request. A later daemon
// has no such ctx.
func Asked(ctx context.Context) (caller, request string) {
	if c, known := peer.FromContext(ctx); known {
		caller = c.String()
	}
	request, _ = ctx.Value(requestKey{}).(string)
	return caller, request
}

type requestKey struct{}

// WithRequestID returns ctx for what a call with this ID leads to.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

type traceKey struct{}

// WithTrace returns ctx for what a call with this traceparent leads to.
func WithTrace(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceparent)
}
