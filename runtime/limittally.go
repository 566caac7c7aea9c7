package runtime

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/finding"
	"github.com/caisson-run/caisson/runtime/events"
)

// tally puts down to commands what the kernel counts for a sandbox as a whole: how often
// it was out of memory, or at its limit of processes. What was counted between two looks
// belongs to what could run meanwhile, and there is a look before each start and at each
// end of a command. Where several could run, it belongs to none of them for certain.
type tally struct {
	mu     sync.Mutex // taken before that of the sandbox; guards what follows
	begun  bool       // seen is known
	seen   limitCounts
	grew   [countedLimits]time.Time // when a look last found more
	strays bool                     // without tags: commands that are over left something running
}

// The limits that the kernel counts, and their names in results and events.
const (
	limitMemory = iota
	limitPIDs
	countedLimits
)

var limitNames = [countedLimits]string{"memory", "pids"}

type limitCounts [countedLimits]int64

// hitQuiet is how long a limit must not have been hit before a hit is an event again, where
// it is not the first of a running command.
const hitQuiet = 10 * time.Second

// lookAtLimits looks at what was counted for s, and tells of what is new.
func (h *host) lookAtLimits(ctx context.Context, s *sandbox) error {
	s.tally.mu.Lock()
	hits, err := h.tallyLocked(s)
	s.tally.mu.Unlock()
	h.emitHits(ctx, s, hits)
	return err
}

// sampleLimits is lookAtLimits where something may have hit one and nobody asks.
func (h *host) sampleLimits(ctx context.Context, s *sandbox) {
	if !s.mayHit() {
		return
	}
	if err := h.lookAtLimits(ctx, s); err != nil { // the cgroup is gone, or the host is out of descriptors
		h.log.Debug("look at the limits of a sandbox", "sandbox", s.id, "err", err)
	}
}

// lookBeforeLocked is a look before a command is admitted, needed where something runs.
func (h *host) lookBeforeLocked(s *sandbox) []events.Data {
	if !s.mayHit() && !s.tally.strays {
		return nil
	}
	hits, err := h.tallyLocked(s)
	if err != nil {
		h.log.Debug("look at the limits of a sandbox", "sandbox", s.id, "err", err)
	}
	return hits
}

func (h *host) emitHits(ctx context.Context, s *sandbox, hits []events.Data) {
	for _, d := range hits {
		h.emit(ctx, s.kept(), events.LimitHit, d)
	}
}

// mayHit reports whether something runs in s, or may, that can hit a limit.
func (s *sandbox) mayHit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running > 0 || len(s.tags.left) > 0 || s.filed
}

func (h *host) tallyLocked(s *sandbox) (hits []events.Data, err error) {
	group, err := h.group(s.id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	runners := s.leftBehindLocked(nil)
	if len(s.tags.left) > 0 { // before the kernel is asked: it has counted what ended those that go
		h.sweepTagsLocked(s)
	}
	s.mu.Unlock()
	counted, err := group.OwnEvents()
	if err != nil {
		return nil, err
	}
	t, now := &s.tally, limitCounts{counted.OOMKills, counted.PIDsMaxHits}
	before := t.seen
	t.seen = now
	adopted := !t.begun && s.plan == nil
	t.begun = true
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range countedLimits {
		if now[l] > before[l] && !adopted {
			hits = append(hits, h.hitLocked(s, l, runners)...)
		}
	}
	s.filed = s.filework > 0
	return hits, nil
}

// hitLocked puts a hit down to the command that alone could run, and returns what is to be
// told of it.
func (h *host) hitLocked(s *sandbox, limit int, runners map[uint32]bool) []events.Data {
	quiet := time.Since(s.tally.grew[limit]) > hitQuiet
	s.tally.grew[limit] = time.Now()
	runners = h.runnersLocked(s, runners)
	d := events.Data{Limit: limitNames[limit]}
	if len(runners) == 1 && !runners[unknownRunner] {
		for n := range runners {
			d.ExecID = number(n)
			if e := s.execs[n]; e != nil && !e.isDone() {
				first := !e.hits[limit]
				e.hits[limit] = true
				d.Caller, d.RequestID = e.record.Caller, e.record.RequestID
				quiet = first
			} else {
				d.Reason = "by what the command left running"
			}
		}
	} else {
		d.Reason = "in the sandbox: " + whoRan(runners)
	}
	if !quiet {
		return nil
	}
	return []events.Data{d}
}

// unknownRunner stands for work on files, and for what no command is known to have started.
const unknownRunner = 0

// leftBehindLocked adds the commands that left something running.
func (s *sandbox) leftBehindLocked(runners map[uint32]bool) map[uint32]bool {
	for _, t := range s.tags.left {
		if runners == nil {
			runners = map[uint32]bool{}
		}
		if t.of == nil {
			runners[unknownRunner] = true
		} else {
			runners[t.of.number()] = true
		}
	}
	return runners
}

// runnersLocked adds to runners all that can have hit a limit of s since the last look. On
// v1 a command with limits of its own is counted by itself.
func (h *host) runnersLocked(s *sandbox, runners map[uint32]bool) map[uint32]bool {
	if runners = s.leftBehindLocked(runners); runners == nil {
		runners = map[uint32]bool{}
	}
	for n, e := range s.execs {
		if !e.isDone() && (e.record.Cgroup == "" || h.groups.Mode == cgroups.V2) {
			runners[n] = true
		}
	}
	if s.filed || s.filework > 0 || s.tally.strays || len(runners) == 0 {
		runners[unknownRunner] = true
	}
	return runners
}

// whoRan names those that may have hit a limit.
func whoRan(runners map[uint32]bool) string {
	var names []string
	var numbers []uint32
	for n := range runners {
		if n != unknownRunner {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		names = append(names, "command "+number(n))
	}
	if runners[unknownRunner] {
		names = append(names, "work on files, or what an earlier command left")
	}
	return strings.Join(names, ", or ")
}

// addHits looks at the limits of s once more, and adds to r what e hit, and what was hit
// while it ran and may be another's.
func (h *host) addHits(ctx context.Context, s *sandbox, e *execution, r *Result, main bool) error {
	if err := h.lookAtLimits(ctx, s); err != nil {
		return err
	}
	s.tally.mu.Lock()
	defer s.tally.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.groups.Tags != finding.Yes {
		s.tally.strays = r.Remaining > 0
	}
	byItself := e.record.Cgroup != "" && h.groups.Mode != cgroups.V2
	for l, own := range []*bool{limitMemory: &r.OOMKilled, limitPIDs: &r.PIDsLimitHit} {
		grew := s.tally.seen[l] > e.record.Counted[l]
		alone := main && len(s.execs) <= 1 && s.lastExec <= e.number()
		*own = *own || e.hits[l] || grew && alone
		if grew && !*own && !byItself {
			r.SandboxLimitsHit = append(r.SandboxLimitsHit, limitNames[l])
		}
	}
	return nil
}

// wasTold reports whether an event told that e hit a limit.
func (e *execution) wasTold(limit int) bool {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	return e.hits[limit]
}
