package usage

import "time"

// Point is the state of the counters at one moment. CPU, the I/O and the traffic count
// from the start on.
type Point struct {
	At            time.Duration // since the Series began, of a clock that never jumps
	CPU           time.Duration // of all CPUs
	MemoryBytes   int64
	PIDs          int64
	IORead        int64 // bytes
	IOWrite       int64
	SentBytes     int64
	ReceivedBytes int64
}

// Sample is what was used between two points.
type Sample struct {
	At            time.Duration // its end
	CPUPercent    float64       // mean; 100 is one CPU
	MemoryBytes   int64         // the most
	PIDs          int64         // the most
	IORead        int64         // bytes
	IOWrite       int64
	SentBytes     int64
	ReceivedBytes int64
}

// levels are how far apart points are kept, and how many: 5 minutes, 30 minutes, 3 hours
// and 28 hours. A full Series takes 52 KiB.
var levels = [4]struct {
	every time.Duration
	keep  int
}{
	{0, 300}, // as they come
	{10 * time.Second, 180},
	{time.Minute, 180},
	{10 * time.Minute, 168},
}

// Series keeps the points of one sandbox, thinned with age. The zero Series is empty and
// began with all counters at zero. It is not safe for concurrent use.
type Series struct {
	rings  [len(levels)]ring
	before Point // the newest that is not kept any more
}

// Add takes a point that is later than all others. The oldest ones that the Series has no
// place for are merged with their neighbours, and dropped in the end.
func (s *Series) Add(p Point) {
	for i, l := range levels {
		r := &s.rings[i]
		if last := r.newest(); l.every > 0 && last != nil && last.At/l.every == p.At/l.every {
			last.merge(p)
			return
		}
		old, pushed := r.add(p, l.keep)
		if !pushed {
			return
		}
		p = old
	}
	s.before = p
}

// merge makes p what it and the later point q are as one.
func (p *Point) merge(q Point) {
	q.MemoryBytes, q.PIDs = max(p.MemoryBytes, q.MemoryBytes), max(p.PIDs, q.PIDs)
	*p = q
}

// Samples returns what was used between each two points, the oldest first.
func (s *Series) Samples() []Sample {
	list := []Sample{}
	last := s.before
	for i := len(levels) - 1; i >= 0; i-- {
		for _, p := range s.rings[i].all() {
			list = append(list, p.Since(last))
			last = p
		}
	}
	return list
}

// Last returns the newest point that is at least age older than now. Without one it
// returns the newest that is not kept any more, which is zero at first.
func (s *Series) Last(now, age time.Duration) Point {
	points := s.rings[0].all()
	for i := len(points) - 1; i >= 0; i-- {
		if now-points[i].At >= age {
			return points[i]
		}
	}
	return s.before
}

// Since is what was used from q to the later point p. A counter that fell is one that
// began anew.
func (p Point) Since(q Point) Sample {
	sample := Sample{
		At: p.At, MemoryBytes: p.MemoryBytes, PIDs: p.PIDs,
		IORead: max(0, p.IORead-q.IORead), IOWrite: max(0, p.IOWrite-q.IOWrite),
		SentBytes: max(0, p.SentBytes-q.SentBytes), ReceivedBytes: max(0, p.ReceivedBytes-q.ReceivedBytes),
	}
	if took := p.At - q.At; took > 0 && p.CPU > q.CPU {
		sample.CPUPercent = 100 * float64(p.CPU-q.CPU) / float64(took)
	}
	return sample
}

// ring keeps the newest points of one level.
type ring struct {
	points []Point
	head   int // the oldest, once it is full
}

// add returns the oldest point, if that had to go.
func (r *ring) add(p Point, keep int) (old Point, pushed bool) {
	if len(r.points) < keep {
		r.points = append(r.points, p)
		return Point{}, false
	}
	old, r.points[r.head] = r.points[r.head], p
	r.head = (r.head + 1) % keep
	return old, true
}

func (r *ring) newest() *Point {
	if len(r.points) == 0 {
		return nil
	}
	return &r.points[(r.head+len(r.points)-1)%len(r.points)]
}

// all returns the points, the oldest first.
func (r *ring) all() []Point {
	return append(append([]Point(nil), r.points[r.head:]...), r.points[:r.head]...)
}
