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
	of   *owner // whose events were missing if they were dropped; nil: all
	nth  uint64 // number of the next one among those of this owner
}

// maxBatch bounds the events that Next returns.
const maxBatch = 256

// Read returns a reader that begins at s. The code is sbxerr.EventsGone where what
// follows an event is no longer kept.
func (b *Bus) Read(s Since) (*Reader, error) { return b.read(s, nil) }

// ReadOf is Read for a caller who only sees events of the user uid. Dropped events of
// others are not missing there.
func (b *Bus) ReadOf(uid uint32, s Since) (*Reader, error) { return b.read(s, &owner{uid: uid}) }

func (b *Bus) read(s Since, of *owner) (*Reader, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &Reader{bus: b, of: of, next: b.last + 1}
	if list := b.kept.list; len(list) > 0 {
		r.next = list[0].number
	}
	switch {
	case !s.from.IsZero():
		r.next = b.last + 1
		for _, p := range b.kept.list { // a clock that jumped back leaves them out of order
			if p.event != nil && !p.event.Time.Before(s.from) {
				r.next = p.number
				break
			}
		}
	case s.after == Cursor{}:
	case s.after.Boot != b.o.Boot:
		return nil, gone("it is of an earlier start of the daemon")
	case s.after.Sequence < r.droppedLocked():
		return nil, gone(fmt.Sprintf("all that are kept follow %s-%d", b.o.Boot, r.droppedLocked()))
	case s.after.Sequence > b.last:
		return nil, sbxerr.New(sbxerr.APIUsage, "events.read", "there is no event %s-%d yet: the newest is %s-%d", b.o.Boot, s.after.Sequence, b.o.Boot, b.last)
	default:
		r.next = s.after.Sequence + 1
	}
	r.countLocked()
	return r, nil
}

func gone(why string) error {
	return sbxerr.New(sbxerr.EventsGone, "events.read", "what followed the event is no longer kept: %w", errors.New(why))
}

// droppedLocked is the number of the newest event that is missing to r.
func (r *Reader) droppedLocked() uint64 {
	if r.of == nil {
		return r.bus.kept.newest
	}
	if s := r.bus.kept.shares[*r.of]; s != nil {
		return s.newest
	}
	return 0
}

// countLocked finds the number of r's next event among those of its owner.
func (r *Reader) countLocked() {
	if r.of == nil {
		return
	}
	r.nth = 1
	s := r.bus.kept.shares[*r.of]
	if s == nil {
		return
	}
	r.nth += s.total
	for _, p := range s.list {
		if p.number >= r.next {
			r.nth = p.nth
			return
		}
	}
}

// Ready returns the events that are there, at most maxBatch, and how many are missing
// before them, which were dropped before they were read. Without any, more is closed when
// there are.
func (r *Reader) Ready() (batch []*Event, lost uint64, more <-chan struct{}) {
	b := r.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.kept.from(r.next) {
		if p.event == nil {
			continue
		}
		missing := r.missing(p)
		if len(batch) == maxBatch || missing > 0 && len(batch) > 0 {
			break
		}
		lost += missing
		r.pass(p)
		batch = append(batch, p.event)
	}
	if len(batch) > 0 {
		return batch, lost, nil
	}
	if b.more == nil {
		b.more = make(chan struct{})
	}
	return nil, 0, b.more
}

// missing is how many events that r does not get are between those that it got and p.
func (r *Reader) missing(p *place) uint64 {
	switch {
	case r.of == nil:
		return p.number - r.next
	case p.owner == *r.of:
		return p.nth - r.nth
	}
	return 0
}

// pass makes p the newest that r got.
func (r *Reader) pass(p *place) {
	r.next = p.number + 1
	if r.of != nil && p.owner == *r.of {
		r.nth = p.nth + 1
	}
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
