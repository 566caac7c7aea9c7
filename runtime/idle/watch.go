package idle

import "time"

// noise is the CPU that what only waits uses in a second: timers, and runtimes that look after
// themselves.
const noise = 5 * time.Millisecond

// Reading is what a sandbox had done at one moment.
type Reading struct {
	At          time.Duration // since any fixed moment
	CPU         time.Duration // so far
	Output      int64         // bytes that its commands wrote so far
	Connections int           // that are open now
}

// Watch compares each reading with the one before. The zero Watch is ready.
type Watch struct{ last Reading }

// Works reports whether something worked since the reading before: it wrote, had a connection
// open, or used more CPU than what waits. The first reading is work if anything was done.
func (w *Watch) Works(now Reading) bool {
	last := w.last
	w.last = now
	seconds := max(now.At-last.At, time.Second).Seconds()
	return now.Connections > 0 || now.Output > last.Output || now.CPU-last.CPU > time.Duration(seconds*float64(noise))
}
