package runtime

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/plan"
)

func (h *host) createHomes(_ context.Context, s *sandbox) error {
	if len(s.plan.Homes) == 0 {
		return nil
	}
	homes := mount.Homes{
		Root: h.paths.rootfs(s.id), Dir: h.paths.homes(s.id), UID: s.block.Base + s.plan.User.UID, GID: s.block.Base + s.plan.User.GID,
		Bytes: s.plan.Limits.TmpfsBytes, Inodes: plan.TmpfsInodes,
	}
	for _, home := range s.plan.Homes {
		homes.List = append(homes.List, mount.Home{Path: home.Target[1:], Mode: home.Mode, Points: home.Points, Files: s.plan.FilesIn(home)})
	}
	if err := makeDir(homes.Dir, 0o711); err != nil {
		return err
	}
	return homes.Attach()
}

func (h *host) removeHomes(_ context.Context, id string) error {
	dir := h.paths.homes(id)
	return errors.Join(mount.RemoveScratch(dir), owndir.Remove(dir))
}

// updateHomes gives the homes of a sandbox of the pool the size that a tmpfs has now.
func (h *host) updateHomes(_ context.Context, s *sandbox, c *change) (undo func() error, err error) {
	if c.plan == nil || len(c.plan.Homes) == 0 {
		return nil, nil
	}
	return nil, mount.ResizeHomes(h.paths.homes(s.id), c.plan.Limits.TmpfsBytes)
}

// usedHomes returns how full the homes of a sandbox with these mounts are, if it has any.
// They share a tmpfs, so the first one stands for all.
func (h *host) usedHomes(id string, mounts []specs.Mount) ([]mount.TmpfsUse, error) {
	dir := h.paths.homes(id)
	i := slices.IndexFunc(mounts, func(m specs.Mount) bool { return filepath.Dir(m.Source) == dir })
	if i < 0 {
		return nil, nil
	}
	use, err := mount.UsedHomes(dir)
	if err != nil {
		return nil, err
	}
	use.Point = mounts[i].Destination
	return []mount.TmpfsUse{use}, nil
}
