package droplog

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/netns/nflog"
)

// endsBurst is how many ends are recorded at once.
const endsBurst = 1 << 10

// ends are those of what left by a link. Of too many there is one record of all, that says
// how many they were and how much.
type ends struct {
	config Config
	most   *rate.Limiter

	mu   sync.Mutex
	rest proxy.Attempt // what those without a record of their own come to; Skipped counts them
}

func newEnds(c Config) *ends { return &ends{config: c, most: rate.NewLimiter(perSecond, endsBurst)} }

// next never reports too many: the kernel keeps each until it is read.
func (l *ends) next(r *nflog.Reader) (bool, error) {
	f, err := r.NextFlow()
	if err == nil {
		l.take(f, time.Now())
	}
	return false, err
}

// take records f, or adds it to the rest. What the host refused has no end.
func (l *ends) take(f nflog.Flow, now time.Time) {
	a := l.config.attempt(nflog.Packet{Group: nflog.Passed, Protocol: f.Protocol, Destination: f.Destination, Read: now}, 0)
	if a.Verdict != proxy.Allowed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a = ended(a, f); l.most.Allow() {
		l.config.Recorder.Record(a)
		return
	}
	if l.rest.Skipped == 0 {
		l.rest = proxy.Attempt{Sandbox: a.Sandbox, Rule: ruleBridge, Verdict: a.Verdict, Left: true, Ended: true, Begun: now}
		time.AfterFunc(ratelog.Interval, l.flush)
	}
	l.rest.Skipped++
	l.rest.Sent, l.rest.Received = sum(l.rest.Sent, a.Sent), sum(l.rest.Received, a.Received)
}

func (l *ends) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rest.Skipped > 0 {
		l.config.Recorder.Record(l.rest)
		l.rest = proxy.Attempt{}
	}
}

// ended is the attempt a with everything that is known at its end.
func ended(a proxy.Attempt, f nflog.Flow) proxy.Attempt {
	a.Ended = true
	a.Sent, a.Received = int64(min(f.Sent, math.MaxInt64)), int64(min(f.Received, math.MaxInt64))
	if !f.Begun.IsZero() {
		a.Begun, a.Duration = f.Begun, max(0, f.Ended.Sub(f.Begun))
	}
	return a
}

// sum adds what is not negative, and stays at the most there can be.
func sum(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }
