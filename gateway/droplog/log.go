package droplog

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/netns/nflog"
)

// How many records of one sandbox there are at most: at once, and sustained. More than that
// is no attempt any more.
const (
	Burst     = 200
	perSecond = 50
)

// pause is how long nothing is read once there are too many packets, so that a flood takes
// next to nothing from other sandboxes. The kernel counts packets for which it has no room.
const pause = time.Millisecond

// endTimeout is how long End reads on.
const endTimeout = 200 * time.Millisecond

// Log records the packets of one sandbox that its namespace's rules refuse. Packets past
// the limit have no record of their own: the record of a later one counts them.
type Log struct {
	reader  *nflog.Reader
	limit   *rate.Limiter
	records ratelog.Log[nflog.Packet]
	awaited atomic.Int32 // by so many
	ended   atomic.Bool
}

// New makes a Log of the packets that are logged on socket. It reads from a copy.
func New(c Config, socket *os.File) (*Log, error) {
	r, err := nflog.NewReader(socket)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Gateway, "droplog.new", err)
	}
	l := newLog(c, r.Missed)
	l.reader = r
	return l, nil
}

// newLog also counts the packets for which the socket had no room: missed returns their
// number since its last call.
func newLog(c Config, missed func() uint64) *Log {
	l := &Log{limit: rate.NewLimiter(perSecond, Burst)}
	l.records.Record = func(p nflog.Packet, skipped uint64) { c.Recorder.Record(c.attempt(p, skipped+missed())) }
	return l
}

// Serve records until End (the error is nil), or the socket fails.
func (l *Log) Serve() error {
	for {
		p, err := l.reader.Next()
		switch {
		case err == nil:
			if p.Opens && !l.add(p) && l.awaited.Load() == 0 { // others are the rest of a connection that was cut
				time.Sleep(pause)
			}
		case l.ended.Load():
			return nil
		default:
			return sbxerr.Wrap(sbxerr.Gateway, "droplog.serve", errors.Join(err, l.reader.Close()))
		}
	}
}

// add records p, or reports that there are too many packets.
func (l *Log) add(p nflog.Packet) bool {
	if !l.limit.Allow() {
		l.records.Suppress(p)
		return false
	}
	l.records.Add(p)
	return true
}

// Settle returns when every packet that was logged before has a record, or is counted by
// one; or false when there is more to read than could be read until latest.
func (l *Log) Settle(latest time.Time) bool {
	l.awaited.Add(1)
	defer l.awaited.Add(-1)
	for {
		if settled, err := l.reader.Settled(); settled || err != nil {
			l.records.Flush()
			return true
		}
		if time.Now().After(latest) {
			return false
		}
		time.Sleep(time.Millisecond) // for another goroutine
	}
}

// End ends Serve, after Settle.
func (l *Log) End() {
	l.Settle(time.Now().Add(endTimeout))
	l.records.Flush()
	l.ended.Store(true)
	_ = l.reader.Close()
}
