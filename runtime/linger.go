package runtime

// maxLingering bounds the ended commands of one sandbox whose pipes are kept open,
// here and by PID 1, because of what they left running.
const maxLingering = 256

// letGo has PID 1 forget e, which is over, once nothing can write to its pipes any
// more. A process that it left running may still do so, and would die of it if
// nobody held the other ends: this daemon and, for a later one, PID 1.
func (h *host) letGo(e *execution) {
	if isClosed(e.drained) {
		h.releaseExec(e)
		return
	}
	s := e.s
	s.update(func() { e.lingers = true })
	_ = e.closeInput() // whoever reads it is to see its end, as ever
	go func() {
		<-e.drained
		h.releaseExec(e)
		s.mu.Lock()
		e.lingers = false
		var over surplus
		if s.ending == nil { // else what there is stays, or all of it goes
			over = s.surplusLocked(h.opts.KeptExecs, h.opts.KeptOutput)
		}
		s.mu.Unlock()
		h.drop(s, over)
	}()
}

// releaseExec has PID 1 forget a command whose end is kept.
func (h *host) releaseExec(e *execution) {
	if err := e.process().Release(); err != nil {
		h.log.Debug("release command", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
}

// lingering returns the oldest of those that linger, as many as are above most.
func (s *sandbox) lingering(most int) (oldest []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.past {
		if e.lingers {
			oldest = append(oldest, e)
		}
	}
	return oldest[:max(0, len(oldest)-most)]
}
