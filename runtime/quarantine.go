package runtime

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Quarantined is something that the daemon cannot remove, or did not make. It is
// skipped, so that all others are served.
type Quarantined struct{ What, Path, Why string }

// quarantine is what the last cleanup had to skip. Each cleanup tries all of it again.
type quarantine struct {
	mu      sync.Mutex
	list    []Quarantined
	orphans int // what is left of sandboxes that the daemon does not know, by the last look
}

// setOrphans notes how many orphaned sandboxes there are among leftovers.
func (q *quarantine) setOrphans(left []Leftover) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.orphans = 0
	for _, l := range left {
		if slices.Contains([]string{"sandbox", "container", "cgroup", "output", "disk"}, l.Kind) {
			q.orphans++
		}
	}
}

func (q *quarantine) orphaned() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.orphans
}

// has reports whether e is skipped already.
func (q *quarantine) has(e Quarantined) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Contains(q.list, e)
}

func (q *quarantine) set(list []Quarantined) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = list
}

func (q *quarantine) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list)
}

// checks tells the doctor's reader of each thing that is skipped.
func (q *quarantine) checks() (found []Check) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.list {
		found = append(found, Check{
			Name: "quarantine", Status: "warn", Detail: fmt.Sprintf("%s at %s: %s", e.What, e.Path, e.Why),
			Code: string(sbxerr.Quarantined), Remedy: sbxerr.RemedyOf(sbxerr.New(sbxerr.Quarantined, "", "")),
		})
	}
	return found
}

// kindForeign is what lies among the daemon's own and was not made by it. It is never
// removed: it may be somebody's.
const kindForeign = "foreign"

// skip puts leftovers that stay into quarantine, each with the reason of its failure.
func (m *Manager) skip(stays map[Leftover]error) {
	var list []Quarantined
	for l, err := range stays {
		e := Quarantined{What: l.Kind + " " + l.ID, Path: m.placeOf(l), Why: l.Reason}
		if err != nil {
			e.Why = err.Error()
		}
		if list = append(list, e); m.quarantine.has(e) { // it was logged
			continue
		}
		m.log.Warn("skip what cannot be removed", "code", sbxerr.Quarantined, "what", e.What, "path", e.Path, "reason", e.Why)
	}
	m.quarantine.set(list)
	m.quarantine.setOrphans(slices.Collect(maps.Keys(stays)))
}

func (h *host) placeOf(l Leftover) string {
	switch l.Kind {
	case kindForeign:
		return l.ID
	case "output":
		return h.paths.output(l.ID)
	case "disk":
		return h.paths.diskDir(l.ID)
	case "cgroup":
		return h.cgroupPath(l.ID)
	}
	return h.paths.sandbox(l.ID)
}

// foreign lists what is in the directories of the daemon and is not its own.
func (h *host) foreign() (found []Leftover, err error) {
	paths, err := h.blocks.Foreign()
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{h.paths.sandboxes(), h.paths.outputs(), h.paths.disks()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, "runtime.list", err)
		}
		for _, e := range entries {
			if !ownDir(e) {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	for _, path := range paths {
		found = append(found, Leftover{Kind: kindForeign, ID: path, Reason: "the daemon did not make it: look at it and remove it by hand"})
	}
	return found, nil
}

// ownDir reports whether an entry can be the directory of a sandbox.
func ownDir(e fs.DirEntry) bool { return e.IsDir() && idForm.MatchString(e.Name()) }
