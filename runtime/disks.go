package runtime

import (
	"context"
	"fmt"
	"os"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/layers"
	"github.com/caisson-run/caisson/runtime/plan"
)

// findDisks completes the limits of a sandbox that is being made. Its binds are attached, so
// nobody can exchange them any more.
func (h *host) findDisks(s *sandbox) error {
	r := s.kept()
	r.Limits = s.plan.Limits
	disks, err := h.disksOf(r)
	s.plan.Limits.Disks = disks
	s.update(func() { s.record.Limits.Disks = disks })
	return err
}

// disksOf names the disks with files of the sandbox of r, if its limits have a rate of I/O:
// those of its layers and binds, and of the daemon's root.
func (h *host) disksOf(r record) (string, error) {
	switch {
	case !r.Limits.RatesIO():
		return "", nil
	case r.unisolated():
		return "", plan.NotEnforced("a rate of I/O")
	}
	dirs := append([]string{h.paths.root}, layers.Paths(r.Layers)...)
	for _, point := range plan.BindPoints(r.Workspace, r.Mounts) {
		dirs = append(dirs, h.paths.point(r.ID, point))
	}
	return cgroups.Limits(r.Limits).DisksOf(dirs)
}

// disksFor names the disks that disksOf would name of a sandbox of p. Volumes are in the
// daemon's root.
func (h *host) disksFor(ctx context.Context, p *plan.Sandbox) (string, error) {
	if !p.Limits.RatesIO() {
		return "", nil
	}
	layers, err := h.store.Layers(ctx, p.Image)
	if err != nil {
		return "", err
	}
	dirs := append([]string{h.paths.root}, layers...)
	for _, b := range p.Mounts {
		if !b.OnHost() {
			continue
		}
		dir, err := openOnHost(ctx, p.Grant, b)
		if err != nil {
			return "", err
		}
		defer dir.Close()
		dirs = append(dirs, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), dir.File.Fd()))
	}
	return cgroups.Limits(p.Limits).DisksOf(dirs)
}
