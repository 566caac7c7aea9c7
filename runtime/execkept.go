package runtime

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/runtime/egress"
)

// keepEnding keeps how e ended, where another daemon may be asked.
func (h *host) keepEnding(e *execution, end ending) {
	if e.record.Ending != nil || !e.s.kept().outlives() {
		return
	}
	e.mu.Lock()
	record := e.record
	e.mu.Unlock()
	record.Ending = &end
	record.EndedAt = time.Now().Round(0)
	if err := e.s.log.Put(e.number(), record); err != nil {
		h.log.Warn("keep the end of a command", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
}

// keepOver keeps why e is being ended: a daemon that comes after this one then ends all
// that e started too, even if e itself has ended by then.
func (h *host) keepOver(e *execution, why Reason) {
	if !e.s.kept().outlives() {
		return
	}
	e.mu.Lock()
	e.record.Over = why
	record := e.record
	e.mu.Unlock()
	if err := e.s.log.Put(e.number(), record); err != nil {
		h.log.Warn("keep that a command is over", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
}

// completeEnding makes the result of e out of what an earlier daemon kept, and keeps
// it while the sandbox's cgroup is there, which counted for it.
func (h *host) completeEnding(ctx context.Context, e *execution) {
	s := e.s
	e.record.Result, e.record.Ending = h.result(ctx, s, e, *e.record.Ending), nil
	if r := s.kept(); counts(r.Network) && e.record.Result.Egress == nil && h.opts.Traffic != nil {
		if before, err := h.opts.Traffic.Counts(s.id); err == nil {
			c := countersOf(egress.Counters{Counts: before})
			if err := h.addLink(c, r); err != nil {
				e.record.Result.Warnings = append(e.record.Result.Warnings, "bytes were not counted: "+err.Error())
			}
			e.record.Result.Egress = c
		}
	}
	if err := s.log.Put(e.number(), e.record); err != nil {
		h.log.Warn("keep result", "sandbox", s.id, "exec", e.number(), "err", err)
	}
}
