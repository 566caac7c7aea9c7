package runtime

import (
	"errors"
	"slices"
)

// surplus is what is too much of the ended commands of a sandbox.
type surplus struct {
	commands []*execution // that are forgotten
	outputs  []*execution // of which only the result is kept
}

// passedLocked takes e, which is over, among those that are, in the order of their
// ends: two that end at once may be concluded in the other one.
func (s *sandbox) passedLocked(e *execution) {
	at := len(s.past)
	for at > 0 && s.past[at-1].record.EndedAt.After(e.record.EndedAt) {
		at--
	}
	s.past = slices.Insert(s.past, at, e)
}

// surplusLocked takes out of s what is above the bounds, the oldest first: commands
// where there are too many, and else no more than what they wrote. Never dropped
// are the command that ended last, as somebody is about to ask for it, and what may
// be written to still; nor is the newest forgotten, so that a later daemon gives its
// number to no other.
func (s *sandbox) surplusLocked(maxCount int, maxBytes int64) (over surplus) {
	if len(s.past) == 0 {
		return over
	}
	count, bytes := 0, int64(0)
	for _, e := range s.past {
		if !e.lingers {
			count, bytes = count+1, bytes+e.keptBytes()
		}
	}
	last := s.past[len(s.past)-1]
	stays := func(e *execution) bool { return e == last || e.lingers }
	s.past = slices.DeleteFunc(s.past, func(e *execution) bool {
		if stays(e) || e.number() == s.newest || count <= maxCount || e.isRead() {
			return false
		}
		count, bytes = count-1, bytes-e.keptBytes()
		delete(s.execs, e.number())
		over.commands = append(over.commands, e)
		return true
	})
	for _, e := range s.past {
		if kept := e.keptBytes(); kept > 0 && !stays(e) && bytes > maxBytes {
			bytes -= kept
			over.outputs = append(over.outputs, e)
		}
	}
	return over
}

// drop forgets what is too much.
func (h *host) drop(s *sandbox, over surplus) {
	for _, e := range over.outputs {
		e.stdout.Drop()
		e.stderr.Drop()
	}
	for _, e := range over.commands {
		if err := h.forgetExec(s, e); err != nil {
			h.log.Warn("drop ended command", "sandbox", s.id, "exec", e.number(), "err", err)
		}
	}
}

// forgetExec removes what is kept of a command, its record last: a later daemon that
// found output of a number without one would give that to another command.
func (h *host) forgetExec(s *sandbox, e *execution) error {
	if err := errors.Join(e.close(), h.removeOutputs(s.id, e.number())); err != nil {
		return err
	}
	return s.log.Drop(e.number())
}

func (e *execution) isRead() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.readers+e.logs > 0
}

// keptBytes is what the output of e takes.
func (e *execution) keptBytes() int64 { return e.stdout.Takes() + e.stderr.Takes() }
