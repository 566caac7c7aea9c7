package runtime

import "slices"

// surplusLocked takes the oldest ended commands out of s until what is left is
// within the bounds. Those that somebody reads stay, and those that left something
// behind which may write still: it would die of its next word.
func (s *sandbox) surplusLocked(maxCount int, maxBytes int64) (drop []*execution) {
	count, bytes := 0, int64(0)
	for _, e := range s.past {
		if !e.lingers {
			count, bytes = count+1, bytes+e.keptBytes()
		}
	}
	s.past = slices.DeleteFunc(s.past, func(e *execution) bool {
		if e.lingers || count <= maxCount && bytes <= maxBytes || e.isRead() {
			return false
		}
		count, bytes = count-1, bytes-e.keptBytes()
		delete(s.execs, e.number())
		drop = append(drop, e)
		return true
	})
	return drop
}

func (e *execution) isRead() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.readers+e.logs > 0
}

// keptBytes is what the output of e takes at most.
func (e *execution) keptBytes() int64 {
	out, _ := e.stdout.Total()
	errOut, _ := e.stderr.Total()
	return min(out, e.record.OutputLimit) + min(errOut, e.record.OutputLimit)
}
