package traffic

import (
	"errors"
	"fmt"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
)

// Cursor is where a reader of entries stands. The zero Cursor is the begin.
type Cursor struct{ carried, rest int64 } // positions in the rings

// String returns c as text, which Begin reads, also that of a later daemon.
func (c Cursor) String() string { return fmt.Sprintf("%d-%d", c.carried, c.rest) }

// Begin returns the cursor of a text; an empty one is the begin. The code is
// sbxerr.APIUsage where the sandbox has no entry at that place.
func (l *Log) Begin(sandbox, text string) (c Cursor, err error) {
	if text == "" {
		return c, nil
	}
	if _, err := fmt.Sscanf(text, "%d-%d", &c.carried, &c.rest); err != nil || c.String() != text || c.carried < 0 || c.rest < 0 {
		return Cursor{}, noCursor(fmt.Errorf("since is %q", sbxerr.Clip(text)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	carried, carriedErr := l.carried(sandbox).end()
	rest, restErr := l.rest(sandbox).end()
	if err := errors.Join(carriedErr, restErr); err != nil {
		return Cursor{}, sbxerr.Wrap(sbxerr.StateDir, "traffic.begin", err)
	}
	if c.carried > carried || c.rest > rest {
		return Cursor{}, noCursor(fmt.Errorf("since is %s, and the last entry has the cursor %s", text, Cursor{carried, rest}))
	}
	return c, nil
}

func noCursor(err error) error {
	return sbxerr.WithRemedy(sbxerr.APIUsage, "traffic.begin", err, "give the cursor of an entry of this sandbox, or none")
}

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
	carriedTo, carriedGone, carriedErr := l.carried(sandbox).read(c.carried, func(e Entry, to int64) {
		e.Cursor.carried = to
		carried = append(carried, e)
	})
	restTo, restGone, restErr := l.rest(sandbox).read(c.rest, func(e Entry, to int64) {
		e.Cursor.rest = to
		rest = append(rest, e)
	})
	if err := errors.Join(carriedErr, restErr); err != nil {
		return nil, Gone{}, sbxerr.Wrap(sbxerr.StateDir, "traffic.read", err)
	}
	all := merge(carried, rest)
	at := *c
	for i := range all { // each knows its own ring's position
		at = Cursor{max(at.carried, all[i].Cursor.carried), max(at.rest, all[i].Cursor.rest)}
		all[i].Cursor = at
	}
	*c = Cursor{carriedTo, restTo}
	return all, goneOf(carriedGone, restGone), nil
}

// Refused returns what a sandbox was refused since a moment, the oldest first, as far as
// that is kept. What came in is not its own attempt.
func (l *Log) Refused(sandbox string, since time.Time) (refused []Entry, err error) {
	l.mu.Lock() // no rotation in between
	defer l.mu.Unlock()
	_, _, err = l.rest(sandbox).read(0, func(e Entry, _ int64) {
		if e.Verdict == string(attempt.Refused) && e.Kind != Inbound && !e.over().Before(since) {
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
