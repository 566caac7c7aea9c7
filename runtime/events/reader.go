package events

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Since is where a reader begins. The zero Since is the oldest event that is kept.
type Since struct {
	after Cursor
	from  time.Time
}

// Cursor is the place of an event in the stream: its ID is BOOT-SEQUENCE.
type Cursor struct {
	Boot     string // of the start of the daemon
	Sequence uint64 // 1 for the first event since then
}

// ParseSince reads the ID of an event, after which a reader begins; or a time of RFC 3339,
// or a duration before now, as 10m, from which on it does.
func ParseSince(text string, now time.Time) (Since, error) {
	if text == "" {
		return Since{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return Since{from: now.Add(-d)}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return Since{from: t}, nil
	}
	boot, number, found := strings.Cut(text, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if !found || err != nil || boot == "" || number != strconv.FormatUint(n, 10) {
		return Since{}, sbxerr.WithRemedy(sbxerr.APIUsage, "events.since", fmt.Errorf("since is %q", sbxerr.Clip(text)),
			"give the ID of an event, a time such as 2026-01-02T15:04:05Z, or a duration such as 10m")
	}
	return Since{after: Cursor{boot, n}}, nil
}

// Reader reads events in order. It is for one goroutine.
type Reader struct {
	bus  *Bus
	next uint64 // number of the event to read next
}

// maxBatch bounds the events that Next returns.
const maxBatch = 256

// Read returns a reader that begins at s. The code is sbxerr.EventsGone where what
// follows an event is no longer kept.
func (b *Bus) Read(s Since) (*Reader, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.firstLocked()
	switch {
	case !s.from.IsZero():
		for _, e := range b.kept { // a clock that jumped back leaves them out of order
			if !e.Time.Before(s.from) {
				break
			}
			first++
		}
		return &Reader{b, first}, nil
	case s.after == Cursor{}:
		return &Reader{b, first}, nil
	case s.after.Boot != b.o.Boot:
		return nil, gone("it is of an earlier start of the daemon")
	case s.after.Sequence+1 < first:
		return nil, gone(fmt.Sprintf("the oldest that is kept is %s-%d", b.o.Boot, first))
	case s.after.Sequence > b.last:
		return nil, sbxerr.New(sbxerr.APIUsage, "events.read", "there is no event %s-%d yet: the newest is %s-%d", b.o.Boot, s.after.Sequence, b.o.Boot, b.last)
	}
	return &Reader{b, s.after.Sequence + 1}, nil
}

func gone(why string) error {
	return sbxerr.New(sbxerr.EventsGone, "events.read", "what followed the event is no longer kept: %w", errors.New(why))
}

func (b *Bus) firstLocked() uint64 { return b.last + 1 - uint64(len(b.kept)) }

// Ready returns the events that are there, at most maxBatch, and how many are missing
// before them, which were dropped before they were read. Without any, more is closed when
// there are.
func (r *Reader) Ready() (batch []*Event, lost uint64, more <-chan struct{}) {
	b := r.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if first := b.firstLocked(); r.next < first {
		lost, r.next = first-r.next, first
	}
	from := len(b.kept) - int(b.last+1-r.next)
	batch = append(batch, b.kept[from:min(len(b.kept), from+maxBatch)]...)
	r.next += uint64(len(batch))
	if len(batch) > 0 {
		return batch, lost, nil
	}
	if b.more == nil {
		b.more = make(chan struct{})
	}
	return nil, lost, b.more
}

// Follow calls yield with each event that the filter takes, and with one of the type Lost
// where some were dropped before they were read. It returns an error of yield, or when
// all events were read and follow is not set, or when ctx ends.
func (r *Reader) Follow(ctx context.Context, follow bool, takes func(*Event) bool, yield func(*Event) error) error {
	for {
		batch, lost, more := r.Ready()
		if lost > 0 {
			if err := yield(&Event{Source: r.bus.o.Source, Time: time.Now().UTC(), Type: Lost, Data: Data{Lost: lost}}); err != nil {
				return err
			}
		}
		for _, e := range batch {
			if !takes(e) {
				continue
			}
			if err := yield(e); err != nil {
				return err
			}
		}
		if len(batch) > 0 {
			continue
		}
		if !follow {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
