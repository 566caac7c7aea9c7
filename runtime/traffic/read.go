package traffic

import (
	"errors"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/proxy"
)

// Cursor is where a reader of entries stands. The zero Cursor is the begin.
type Cursor struct{ carried, rest int64 } // positions in the rings

// Gone says what a reader did not get, because it was dropped before.
type Gone struct {
	Entries bool // some
	Reached bool // and of connections that the sandbox made, and that were carried, among them
}

// Entries returns what is kept of a sandbox's attempts, the oldest first, from
// where c stands on, and moves c.
func (l *Log) Entries(sandbox string, c *Cursor) ([]Entry, Gone, error) {
	l.mu.Lock() // no rotation in between
	defer l.mu.Unlock()
	var carried, rest []Entry
	carriedTo, carriedGone, carriedErr := l.carried(sandbox).read(c.carried, func(e Entry) { carried = append(carried, e) })
	restTo, restGone, restErr := l.rest(sandbox).read(c.rest, func(e Entry) { rest = append(rest, e) })
	if err := errors.Join(carriedErr, restErr); err != nil {
		return nil, Gone{}, sbxerr.Wrap(sbxerr.StateDir, "traffic.read", err)
	}
	c.carried, c.rest = carriedTo, restTo
	return merge(carried, rest), goneOf(carriedGone, restGone), nil
}

// Refused returns what a sandbox was refused since a moment, the oldest first, as far as
// that is kept. What came in is not its own attempt.
func (l *Log) Refused(sandbox string, since time.Time) (refused []Entry, err error) {
	l.mu.Lock() // no rotation in between
	defer l.mu.Unlock()
	_, _, err = l.rest(sandbox).read(0, func(e Entry) {
		if e.Verdict == string(proxy.Refused) && e.Kind != Inbound && !e.over().Before(since) {
			refused = append(refused, e)
		}
	})
	return refused, sbxerr.Wrap(sbxerr.StateDir, "traffic.refused", err)
}

// goneOf looks at what was dropped from each ring. An earlier daemon kept all entries
// in the one for the rest.
func goneOf(rings ...*Counts) Gone {
	var g Gone
	for _, dropped := range rings {
		if dropped != nil {
			g.Entries = true
			g.Reached = g.Reached || dropped.Allowed > 0
		}
	}
	return g
}

// merge makes one list of two, by when what they tell of was over: that is the order
// of each.
func merge(a, b []Entry) []Entry {
	all := make([]Entry, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if b[0].over().Before(a[0].over()) {
			all, b = append(all, b[0]), b[1:]
		} else {
			all, a = append(all, a[0]), a[1:]
		}
	}
	return append(append(all, a...), b...)
}

func (e Entry) over() time.Time { return e.Time.Add(e.Duration) }

// Gap is the entry that tells of g, before the entries that are left.
func (g Gone) Gap(left []Entry) Entry {
	e := Entry{Kind: Gap, Time: time.Now(), Reason: "older entries are no longer kept, those of connections that were carried among them"}
	if len(left) > 0 {
		e.Time = left[0].Time
	}
	if !g.Reached {
		e.Reason = "older entries of lookups, of what was refused or failed, or of what came in, are no longer kept"
	}
	return e
}

// Counts returns what the entries of a sandbox come to.
func (l *Log) Counts(sandbox string) (Counts, error) {
	l.mu.Lock() // no rotation in between
	defer l.mu.Unlock()
	carried, carriedErr := l.carried(sandbox).counts()
	rest, restErr := l.rest(sandbox).counts()
	return carried.plus(rest), sbxerr.Wrap(sbxerr.StateDir, "traffic.counts", errors.Join(carriedErr, restErr))
}
