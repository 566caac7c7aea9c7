// Package export sends the records of the audit log to a receiver outside of it: syslog
// (RFC 5424) or the journal of systemd. Each record arrives at least once, and in order.
//
// An Exporter reads the log's own segments, so it never holds up the daemon. A file
// beside the segments keeps the number of the last record that the receiver has for sure.
// While the receiver is away, records wait in the log.
//
// Neither protocol acknowledges. A record counts as received when so many bytes were sent
// after it that no buffer in between can hold it, or when the kernel says that a local
// receiver has read it. After a connection that broke, all later records are sent again.
package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/owndir"
)

const (
	firstWait  = 500 * time.Millisecond // between attempts; each later wait is twice as long
	lastWait   = 30 * time.Second
	settled    = 2 * time.Second // a receiver that keeps a connection so long is back
	lastChance = 3 * time.Second // to take the rest when the daemon stops
)

// Options is what an Exporter is made of.
type Options struct {
	Dir      string        // of the log
	Newest   func() uint64 // number of the newest record
	Receiver Receiver
	Log      *slog.Logger
}

// Exporter sends records to one receiver.
type Exporter struct {
	o      Options
	file   string // holds the cursor
	cursor *audit.Cursor
	saved  time.Time

	mu       sync.Mutex
	received uint64 // last record that the receiver has for sure
	sent     uint64
	skipped  uint64 // records that retention removed before they were sent
	away     error
}

// Status is how an Exporter does.
type Status struct {
	Receiver string // for people
	Lag      uint64 // records that were not sent yet
	Skipped  uint64 // records that were gone before they could be sent, since the start
	Away     error  // why the receiver gets nothing; nil if it does
}

// New returns an exporter that goes on where the one before it ended, or begins with the
// oldest record.
func New(o Options) *Exporter {
	e := &Exporter{o: o, file: filepath.Join(o.Dir, "export-"+o.Receiver.id())}
	text, err := owndir.ReadFile(e.file, 64)
	if err == nil {
		e.received, err = strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 10, 64)
	}
	switch newest := o.Newest(); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		o.Log.Warn("audit export: its place is unknown, all records are sent", "file", e.file, "err", err)
	case e.received > newest:
		o.Log.Warn("audit export: the log is shorter than before", "sent", e.received, "newest", newest)
		e.received = newest
	}
	e.sent = e.received
	e.cursor = audit.NewCursor(o.Dir, e.sent+1)
	return e
}

// Status may be called at any time.
func (e *Exporter) Status() Status {
	newest := e.o.Newest()
	e.mu.Lock()
	defer e.mu.Unlock()
	return Status{Receiver: e.o.Receiver.String(), Lag: newest - min(newest, e.sent), Skipped: e.skipped, Away: e.away}
}

// Run sends records until ctx ends, and then for a moment those that are left.
func (e *Exporter) Run(ctx context.Context) {
	defer e.cursor.Close()
	last, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastChance, cut) })()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		began := time.Now()
		err := e.session(ctx, last)
		e.save()
		if ctx.Err() != nil {
			return
		}
		e.fail(err)
		if time.Since(began) > settled {
			wait = firstWait
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// session sends over one connection until that breaks, or until ctx ends and nothing is
// left. It gives up when last ends.
func (e *Exporter) session(ctx, last context.Context) error {
	c, err := e.o.Receiver.dial(last)
	if err != nil {
		return err
	}
	defer c.close()
	defer context.AfterFunc(last, c.abort)()
	e.rewind()
	s := session{e: e, conn: c, began: time.Now(), window: window{limit: e.o.Receiver.window(), received: e.received}}
	for {
		s.observe() // a receiver that keeps up has read by now all that was sent before the wait
		if err := s.sendAll(); err != nil {
			return err
		}
		select {
		case <-time.After(audit.FollowInterval):
		case <-c.broken():
			return fmt.Errorf("the receiver ended the connection: %w", c.cause())
		case <-ctx.Done():
			if err := errors.Join(s.sendAll(), c.finish()); err != nil {
				return err
			}
			e.note(s.last, s.last)
			return nil
		}
	}
}

// rewind goes back to the first record that the receiver may not have.
func (e *Exporter) rewind() {
	e.mu.Lock()
	e.sent = e.received
	e.mu.Unlock()
	e.cursor.Seek(e.received + 1)
}

func (e *Exporter) note(sent, received uint64) {
	e.mu.Lock()
	e.sent, e.received = sent, max(e.received, received)
	e.mu.Unlock()
	if time.Since(e.saved) > audit.FollowInterval {
		e.save()
	}
}

// save keeps the cursor for the next daemon. Without it records would only be sent again.
func (e *Exporter) save() {
	e.saved = time.Now()
	tmp := e.file + ".new"
	err := os.WriteFile(tmp, []byte(strconv.FormatUint(e.received, 10)+"\n"), 0o600)
	if err == nil {
		err = owndir.Rename(tmp, filepath.Base(e.file))
	}
	if err != nil {
		e.o.Log.Debug("audit export: keep the place", "err", err)
	}
}

// gap tells of records that are not in the log any more.
func (e *Exporter) gap(from, to uint64) {
	e.mu.Lock()
	e.skipped += to - from
	e.mu.Unlock()
	e.o.Log.Error("audit export: records were removed before they were sent", "receiver", e.o.Receiver.String(), "first", from, "last", to-1,
		"remedy", "raise audit.max_bytes or audit.max_age, or keep the receiver up")
}

// fail notes why the receiver gets nothing, and logs the first time of a row.
func (e *Exporter) fail(err error) {
	e.mu.Lock()
	first := e.away == nil
	e.away = sbxerr.Wrap(sbxerr.ExportAway, "audit.export", err)
	e.mu.Unlock()
	if first {
		e.o.Log.Warn("audit export: the receiver is away, records wait", "receiver", e.o.Receiver.String(), "err", err)
	}
}

func (e *Exporter) back() {
	e.mu.Lock()
	was := e.away != nil
	e.away = nil
	e.mu.Unlock()
	if was {
		e.o.Log.Info("audit export: the receiver takes records again", "receiver", e.o.Receiver.String())
	}
}
