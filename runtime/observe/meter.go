package observe

import (
	"sync"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/usage"
)

const (
	// Interval is the time between two samples.
	Interval = time.Second
	// CPUSpan is the least time over which a share of CPU is told: over less, one tick of
	// the scheduler shows as a peak.
	CPUSpan = 500 * time.Millisecond
)

// Reading is what a sandbox used until now.
type Reading struct {
	cgroups.Usage
	SentBytes     int64
	ReceivedBytes int64
}

// Total is what a sandbox used in all, and the point of it in its series.
type Total struct {
	Last  cgroups.Usage
	Point usage.Point
}

// Earlier is what an earlier daemon kept of a sandbox.
type Earlier struct {
	Total
	Series *usage.Series
}

// Source is the sandbox that a Meter measures. Its methods are called under the meter's lock.
type Source interface {
	// Begin returns when the sandbox was made, and what an earlier daemon kept of it: nil if
	// nothing is known of what that one measured.
	Begin() (made time.Time, kept *Earlier)
	// Read reports whether there was something to read.
	Read() (Reading, bool)
	// HeldBack takes the time for which the limit of CPU held the sandbox back since the last.
	HeldBack(time.Duration)
}

// Meter keeps what a sandbox used. The zero Meter is ready.
type Meter struct {
	mu      sync.Mutex
	began   time.Time // when the sandbox was made
	unknown bool      // what an earlier daemon measured
	series  usage.Series
	total   Total

	watches  watches
	throttle throttle
}

// Measure reads what src uses and adds it to the series.
func (t *Meter) Measure(src Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.readLocked(src) {
		t.series.Add(t.total.Point)
	}
}

// Used returns what src used last and the use of CPU since the point before, in percent, at most a
// second old. One that is not live has what it used in all.
func (t *Meter) Used(src Source, live bool) (now Total, cpuPercent float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beginLocked(src)
	at := t.total.Point.At
	if fresh := at > 0 && time.Since(t.began)-at < Interval; live && (fresh || t.readLocked(src)) {
		return t.total, t.cpuLocked()
	}
	now = t.total
	now.Last.MemoryBytes, now.Last.PIDs = 0, 0
	return now, 0
}

// Total returns what was used at the last reading.
func (t *Meter) Total() Total {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

// Keep has what was used stored, unless the sandbox was never measured.
func (t *Meter) Keep(store func(Total, *usage.Series)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.series.Len() > 0 {
		store(t.total, &t.series)
	}
}

// Samples are those of the series, oldest first.
func (t *Meter) Samples(src Source) []Sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beginLocked(src)
	return Samples(&t.series, t.began)
}

func (t *Meter) cpuLocked() float64 {
	return t.total.Point.Since(t.series.Last(t.total.Point.At, CPUSpan)).CPUPercent
}

// beginLocked makes t ready. The meter of a sandbox of an earlier daemon goes on with what that
// one kept.
func (t *Meter) beginLocked(src Source) {
	if !t.began.IsZero() {
		return
	}
	made, kept := src.Begin()
	t.began = time.Now().Add(-time.Since(made)) // of a clock that never jumps
	if kept == nil {
		t.unknown = true
		return
	}
	t.total = kept.Total
	if kept.Series != nil {
		t.series = *kept.Series
	}
}

func (t *Meter) readLocked(src Source) bool {
	r, ok := src.Read()
	if !ok {
		return false
	}
	t.heldBackLocked(src, r.CPUUse)
	t.total = Total{r.Usage, usage.Point{
		At: time.Since(t.began), CPU: r.CPU, MemoryBytes: r.MemoryBytes, PIDs: r.PIDs, IORead: r.IOReadBytes.N, IOWrite: r.IOWriteBytes.N,
		SentBytes: r.SentBytes, ReceivedBytes: r.ReceivedBytes,
	}}
	return true
}

// Sample is what was used in the time since the sample before.
type Sample struct {
	Time          time.Time // its end
	CPUPercent    float64   // mean; 100 is one CPU
	MemoryBytes   int64     // the most
	PIDs          int64     // the most
	IOReadBytes   int64
	IOWriteBytes  int64
	SentBytes     int64
	ReceivedBytes int64
}

// Samples are those of a series of a sandbox that was made at began.
func Samples(s *usage.Series, began time.Time) []Sample {
	list := []Sample{}
	for _, x := range s.Samples() {
		list = append(list, Sample{
			Time: began.Add(x.At), CPUPercent: x.CPUPercent, MemoryBytes: x.MemoryBytes, PIDs: x.PIDs,
			IOReadBytes: x.IORead, IOWriteBytes: x.IOWrite, SentBytes: x.SentBytes, ReceivedBytes: x.ReceivedBytes,
		})
	}
	return list
}
