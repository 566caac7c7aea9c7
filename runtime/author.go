package runtime

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sbxerr"
)

// This file tells which command of a sandbox tried to reach something. All of them
// share one namespace, so it is told from who could have: where a command was
// started while nothing but PID 1 was there, all that is tried from then on until
// another one starts is its own, or its children's. What cannot be told so is not
// guessed at. Commands of one sandbox that work against each other are not told
// apart: one can have another do its work in many ways.

// authors knows who could try something in each sandbox, and when.
type authors struct {
	mu sync.Mutex
	of map[string][]era
}

// era is a time with one author, which lasts until the next era.
type era struct {
	exec  uint32
	begin time.Time
	sole  bool // nobody else was there
	heard bool // of all that was tried before
}

// maxEras is how many of a sandbox are kept. What was tried before has no author.
const maxEras = 256

func newAuthors() *authors { return &authors{of: map[string][]era{}} }

// begin notes that a command is to be started: from now on, others may not be the
// only ones any more.
func (a *authors) begin(sandbox string, exec uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	eras := append(a.of[sandbox], era{exec: exec, begin: time.Now()})
	a.of[sandbox] = slices.Delete(eras, 0, max(0, len(eras)-maxEras))
}

// alone notes that nobody but the command, which is not started yet, can try
// anything, unless another one has begun by now; and whether the gateway has heard of all
// that was tried before.
func (a *authors) alone(sandbox string, exec uint32, heard bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	eras := a.of[sandbox]
	if last := len(eras) - 1; last >= 0 && eras[last].exec == exec {
		eras[last].begin, eras[last].sole, eras[last].heard = time.Now(), true, heard
	}
}

// forget drops what is known of a sandbox.
func (a *authors) forget(sandbox string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, sandbox)
}

// who is the command that tried something between two times, by the clock of the
// host, and empty where that is not certain: the clock was set since, included. What
// has no first time was heard of at the second: it is of the era in which that lies if
// nothing of before was still to be heard of when that began.
func (a *authors) who(sandbox string, after, before time.Time) string {
	if before.IsZero() || before.Before(after) {
		return ""
	}
	from, late := after, after.IsZero()
	if late {
		from = before
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	eras, now := a.of[sandbox], time.Now()
	for i, e := range slices.Backward(eras) {
		if from.Before(e.begin.Round(0)) {
			continue
		}
		over := i+1 < len(eras) && !before.Before(eras[i+1].begin.Round(0))
		if !e.sole || late && !e.heard || over || slipped(now.Round(0).Sub(e.begin.Round(0)), now.Sub(e.begin)) {
			return ""
		}
		return number(e.exec)
	}
	return ""
}

// maxSlip is by how much two clocks may differ that were not set.
const maxSlip = time.Millisecond

// slipped reports whether the clock of the host was set between two times, by how
// far they are apart for it and for a clock that nobody sets.
func slipped(wall, steady time.Duration) bool {
	by := wall - steady
	return max(by, -by) > maxSlip
}

// beginEra notes who could try something from now on, when a command is about to be
// started.
func (m *Manager) beginEra(s *sandbox, exec uint32) {
	r := s.kept()
	if !counts(r.Network) {
		return
	}
	m.authors.begin(s.id, exec)
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running > 1 {
		return
	}
	if empty, err := m.onlyInit(s); err != nil {
		m.log.Debug("look who could reach something", "sandbox", s.id, "err", err)
	} else if empty {
		m.authors.alone(s.id, exec, m.opts.Egress.Heard(s.id))
	}
}

// onlyInit reports whether PID 1 is the only process of s, as the kernel says.
func (m *Manager) onlyInit(s *sandbox) (bool, error) {
	if s.process == nil {
		return false, sbxerr.Wrap(sbxerr.Internal, "runtime.author", errors.New("it is not known which process is PID 1"))
	}
	group, err := m.group(s.id)
	if err != nil {
		return false, err
	}
	return group.IsOnly(s.process.pid)
}
