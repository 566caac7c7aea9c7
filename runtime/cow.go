package runtime

import (
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/plan"
)

// attachCow attaches a copy-on-write workspace at point. What is written goes to the disk of s.
func (h *host) attachCow(s *sandbox, point string, ws *mount.Workspace, ids *mount.UserNS) error {
	if err := makeDir(h.paths.point(s.id, plan.CowLower), 0o700); err != nil {
		return err
	}
	if err := makeDir(h.paths.point(s.id, plan.CowChanges), 0o700); err != nil {
		return err
	}
	return ws.AttachCow(mount.Cow{
		Dir: h.paths.sandbox(s.id), Lower: plan.CowLower, Changes: plan.CowChanges, Target: point, Base: s.block.Base,
	}, ids)
}
