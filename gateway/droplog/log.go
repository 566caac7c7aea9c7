package droplog

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns/nflog"
)

// Log records what is told on one socket.
type Log struct {
	reader  *nflog.Reader
	lot     lot
	awaited atomic.Int32 // by so many
	ended   atomic.Bool
}

// lot is what is told on a socket: packets, or the ends of what left. Nothing of it is
// unaccounted for: what has no record by itself is in that of others.
type lot interface {
	// next waits for the next one, and takes it. It reports whether there are too many.
	next(r *nflog.Reader) (tooMany bool, err error)
	// flush records what was taken and has no record yet.
	flush()
}

// perSecond is how many records of each kind there are at most, sustained.
const perSecond = 50

// AtOnce is how many records of one sandbox there are at once, at most.
const AtOnce = 2*burst + endsBurst

// pause is how long nothing is read once there are too many, so that a flood takes next
// to nothing from other sandboxes. The kernel counts what it has no room for.
const pause = time.Millisecond

// Packets makes a Log of the packets that are told on socket. A copy of it is read.
func Packets(c Config, socket *os.File) (*Log, error) {
	r, err := nflog.NewReader(socket)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Gateway, "droplog.packets", err)
	}
	return &Log{reader: r, lot: newPackets(c, r.Missed)}, nil
}

// Ends makes a Log of the connections and exchanges whose ends are told on socket. A copy of
// it is read.
func Ends(c Config, socket *os.File) (*Log, error) {
	r, err := nflog.NewReader(socket)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Gateway, "droplog.ends", err)
	}
	return &Log{reader: r, lot: newEnds(c)}, nil
}

// Serve records until End (the error is nil), or the socket fails.
func (l *Log) Serve() error {
	for {
		tooMany, err := l.lot.next(l.reader)
		switch {
		case err == nil:
			if tooMany && l.awaited.Load() == 0 {
				time.Sleep(pause)
			}
		case l.ended.Load():
			return nil
		default:
			return sbxerr.Wrap(sbxerr.Gateway, "droplog.serve", errors.Join(err, l.reader.Close()))
		}
	}
}

// Settle returns when all has a record that was told before, or is counted by one; or false
// when there is more to read than could be read until latest.
func (l *Log) Settle(latest time.Time) bool {
	l.awaited.Add(1)
	defer l.awaited.Add(-1)
	for {
		if settled, err := l.reader.Settled(); settled || err != nil {
			l.lot.flush()
			return true
		}
		if time.Now().After(latest) {
			return false
		}
		time.Sleep(time.Millisecond) // for another goroutine
	}
}

// End ends Serve, after Settle.
func (l *Log) End(latest time.Time) {
	l.Settle(latest)
	l.lot.flush()
	l.ended.Store(true)
	_ = l.reader.Close()
}
