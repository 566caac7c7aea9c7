package runtime

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Cleanup finds what belongs to this daemon and to no live sandbox, and
// removes it unless dryRun is set. Of a sandbox that has ended that is what it
// does not keep. What is not this daemon's is never looked at: everything is
// found by its place or its containerd namespace.
func (m *Manager) Cleanup(ctx context.Context, dryRun bool) ([]Leftover, error) {
	if err := m.permit(ctx, peer.Grant.CheckAdmin); err != nil {
		return nil, err
	}
	found, failed, err := m.cleanup(ctx, dryRun)
	return found, errors.Join(err, failed)
}

// Settle is the Cleanup of a daemon that begins. What cannot be removed goes into
// quarantine and keeps nobody from being served.
func (m *Manager) Settle(ctx context.Context) ([]Leftover, error) {
	found, _, err := m.cleanup(ctx, false)
	return found, err
}

// StartCleaning removes at intervals what belongs to no sandbox, until ctx ends.
func (m *Manager) StartCleaning(ctx context.Context) {
	if m.opts.CleanEvery == 0 {
		return
	}
	go func() {
		tick := time.NewTicker(m.opts.CleanEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				cleaner{m}.again(ctx)
				m.workspaces.Prune(ctx)
				m.snapshots.Prune(ctx)
			}
		}
	}()
}

// cleaner finds and removes what belongs to no sandbox. One works at a time.
type cleaner struct{ *Manager }

// again logs what it finds and what it cannot remove.
func (m cleaner) again(ctx context.Context) {
	m.cleaning.Lock()
	defer m.cleaning.Unlock()
	found, _, err := m.workLocked(ctx, false)
	if err != nil && ctx.Err() == nil {
		m.log.Warn("look for what belongs to no sandbox", "err", err)
	}
	for _, l := range found {
		if l.Removed {
			m.log.Warn("removed what belongs to no sandbox", "kind", l.Kind, "id", l.ID, "reason", l.Reason)
		}
	}
}

// cleanup tells apart what could not be removed and what could not be looked for.
func (m *Manager) cleanup(ctx context.Context, dryRun bool) (found []Leftover, failed, err error) {
	defer m.Busy()()
	m.cleaning.Lock() // two at once would take each other's work for failures
	defer m.cleaning.Unlock()
	found, errs, err := cleaner{m}.workLocked(ctx, dryRun)
	if dryRun {
		return found, nil, err
	}
	if e := m.images.Sweep(ctx); e != nil {
		m.log.Warn("remove what killed imports and builds left", "err", e)
		errs = append(errs, e)
	}
	if e := m.snapshots.Sweep(); e != nil {
		m.log.Warn("remove what killed changes of snapshots left", "err", e)
	}
	if e := m.volumes.Sweep(); e != nil {
		m.log.Warn("remove what killed changes of volumes left", "err", e)
		errs = append(errs, e)
	}
	return found, errors.Join(errs...), err
}

// workLocked finds leftovers, and removes them unless dryRun is set. Failed has an error for
// each that it could not remove.
func (m cleaner) workLocked(ctx context.Context, dryRun bool) (found []Leftover, failed []error, err error) {
	found, err = m.leftovers(ctx)
	foreign, foreignErr := m.foreign()
	err = errors.Join(err, foreignErr)
	if dryRun {
		m.quarantine.setOrphans(found)
		return append(found, foreign...), nil, err
	}
	stays := map[Leftover]error{}
	for _, l := range foreign {
		stays[l] = nil
	}
	errs := removeEach(found, func(l Leftover) error { return m.removeLeftover(ctx, l) })
	for i, l := range found {
		if errs[i] != nil {
			stays[l] = errs[i]
			continue
		}
		found[i].Removed = true
		if l.Kind != kindSnapshot && l.Kind != kindRemains {
			m.emitLeftover(ctx, l)
		}
	}
	m.skip(stays)
	return append(found, foreign...), errs, err
}

// cleanAtOnce is how many leftovers are removed at the same time. Each waits for containerd,
// the kernel and the disk for most of the time.
const cleanAtOnce = 4

// removeEach removes what sandboxes left, and then views, which those may have. It returns an
// error for each of found.
func removeEach(found []Leftover, remove func(Leftover) error) []error {
	errs := make([]error, len(found))
	atOnce := make(slots, cleanAtOnce)
	var all sync.WaitGroup
	for _, views := range []bool{false, true} {
		for i, l := range found {
			if views == (l.Kind == kindSnapshot) {
				all.Go(func() { errs[i] = atOnce.do(func() error { return remove(l) }) })
			}
		}
		all.Wait()
	}
	return errs
}

func (m cleaner) removeLeftover(ctx context.Context, l Leftover) error {
	switch l.Kind {
	case kindSnapshot:
		return m.store.ReleaseView(ctx, l.ID)
	case kindRemains:
		if s := m.byID(l.ID); s != nil { // else it was removed meanwhile, whole
			return m.strip(ctx, s)
		}
		return nil
	}
	if err := m.teardown(ctx, l.ID, 0); err != nil {
		return err
	}
	if dir := m.paths.output(l.ID); exists(dir) { // removal leaves what is not the daemon's
		return sbxerr.New(sbxerr.StateDir, "runtime.cleanup", "%q holds something that the daemon did not make, or something is mounted there", dir)
	}
	return nil
}

// The kinds of what is not removed as a sandbox of which nothing is known.
const (
	kindRemains  = "remains" // of a sandbox that ended
	kindSnapshot = "snapshot"
)

// leftovers lists what ended sandboxes still hold, half-made and orphaned sandboxes
// once each, whatever it is that is left of them, and then views of images that
// nobody needs.
func (m *Manager) leftovers(ctx context.Context) ([]Leftover, error) {
	found := m.remains()
	var errs []error
	seen := map[string]bool{}
	for _, source := range []struct {
		kind, reason string
		list         func() ([]string, error)
	}{
		{"sandbox", "its daemon ended before it", m.sandboxDirs},
		{"container", "no sandbox has it", func() ([]string, error) { return m.engine.Containers(ctx) }},
		{"cgroup", "no sandbox has it", func() ([]string, error) { return cgroups.List(m.groups, m.opts.CgroupParent) }},
		{"output", "no sandbox has it", func() ([]string, error) { return dirNames(m.paths.outputs()) }},
		{"disk", "no sandbox has it", func() ([]string, error) { return dirNames(m.paths.disks()) }},
	} {
		ids, err := source.list()
		errs = append(errs, err)
		for _, id := range ids {
			// Looked up after the listing: a sandbox is known before it makes
			// anything.
			if !seen[id] && idForm.MatchString(id) && m.byID(id) == nil {
				seen[id] = true
				found = append(found, Leftover{Kind: source.kind, ID: id, Reason: source.reason})
			}
		}
	}
	views, err := m.images.UnusedViews(ctx)
	for _, v := range views {
		found = append(found, Leftover{Kind: kindSnapshot, ID: v, Reason: "no image and no sandbox needs it"})
	}
	return found, errors.Join(append(errs, err)...)
}

// remains lists the ended sandboxes that hold more than they keep: the daemon was
// killed before it freed that, or could not.
func (m *Manager) remains() []Leftover {
	found := []Leftover{}
	for _, s := range m.all() {
		if s.retired() && !s.kept().Stripped {
			found = append(found, Leftover{Kind: kindRemains, ID: s.id, Reason: "its sandbox has ended, and stays with its output only"})
		}
	}
	return found
}

// byID returns the sandbox with this ID, nil where there is none.
func (m *Manager) byID(id string) *sandbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sandboxes[id]
}

// sandboxDirs lists the sandboxes that have a directory.
func (h *host) sandboxDirs() ([]string, error) {
	return dirNames(h.paths.sandboxes())
}

func dirNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "runtime.list", err)
	}
	names := []string{}
	for _, e := range entries {
		if ownDir(e) { // see foreign
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
