package api

import "slices"

// Kept is a writer that keeps a stream within a bound: its first half and its
// last half. A caller that is connected gets all of the stream.
type Kept struct {
	limit      int64
	head, tail []byte // tail may grow to twice its half before it is cut
	passed     int64  // bytes of the stream, also those that were skipped
	gap        bool   // bytes are missing behind head
}

// NewKept keeps limit bytes, which must be at least 2.
func NewKept(limit int64) *Kept { return &Kept{limit: limit} }

// Write implements io.Writer. It never fails.
func (k *Kept) Write(p []byte) (int, error) {
	n := len(p)
	k.passed += int64(n)
	if !k.gap {
		room := min(k.limit-k.limit/2-int64(len(k.head)), int64(n))
		k.head = append(k.head, p[:room]...)
		p = p[room:]
	}
	k.tail = append(k.tail, p...)
	if half := k.limit / 2; int64(len(k.tail)) > 2*half {
		k.tail = slices.Delete(k.tail, 0, len(k.tail)-int(half))
	}
	return n, nil
}

// Skip takes note of n bytes that the daemon left out. It never fails.
func (k *Kept) Skip(n int64) error {
	k.passed += n
	k.gap = true
	k.tail = k.tail[:0] // there is one gap: in front of the last bytes
	return nil
}

// Bytes returns the kept parts of a stream of total bytes, and how many bytes are left
// out between them. A total below what passed is not looked at.
func (k *Kept) Bytes(total int64) (kept []byte, skipped int64) {
	total = max(total, k.passed)
	tail := k.tail
	if total > k.limit {
		tail = tail[max(0, int64(len(tail))-k.limit/2):]
	}
	return slices.Concat(k.head, tail), total - int64(len(k.head)+len(tail))
}
