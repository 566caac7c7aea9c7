package droplog

import (
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/netns/nflog"
)

// burst is how many packets are recorded at once. More than that is no attempt any more.
const burst = 200

// packets are those of one socket.
type packets struct {
	most *rate.Limiter
	rest ratelog.Log[nflog.Packet]
}

// newPackets has those counted too for which the socket had no room, of which missed tells
// how many they were since it was called before.
func newPackets(c Config, missed func() uint64) *packets {
	l := &packets{most: rate.NewLimiter(perSecond, burst)}
	l.rest.Record = func(p nflog.Packet, skipped uint64) { c.Recorder.Record(c.attempt(p, skipped+missed())) }
	return l
}

func (l *packets) next(r *nflog.Reader) (tooMany bool, err error) {
	p, err := r.Next()
	if err != nil || p.Group != nflog.Passed && !p.Opens { // the rest of what was cut
		return false, err
	}
	return !l.take(p), nil
}

// take records p, or reports that there are too many.
func (l *packets) take(p nflog.Packet) bool {
	if !l.most.Allow() {
		l.rest.Suppress(p)
		return false
	}
	l.rest.Add(p)
	return true
}

func (l *packets) flush() { l.rest.Flush() }
