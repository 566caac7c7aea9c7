package runtime

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/clones"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/plan"
)

// cloneWorkspace has git in s, which nobody knows yet, make its workspace. The host's repository
// is inside meanwhile.
func (h *host) cloneWorkspace(ctx context.Context, s *sandbox) error {
	w := s.plan.Request.Workspace
	if !w.Clone() {
		return nil
	}
	return s.timed("clone", func() error {
		point, live := h.paths.point(s.id, plan.CloneSourcePoint), mount.Live{Target: plan.CloneSource, ReadOnly: true}
		err := h.withBind(ctx, s, s.plan, plan.Mount{Source: w.Dir, Target: plan.CloneSource, Point: plan.CloneSourcePoint, ReadOnly: true})
		if err != nil {
			return errors.Join(err, mount.RemovePoint(point))
		}
		source := live
		source.Point = point
		if err = errors.Join(source.AttachInto(s.process.file), failpoint.At("create/cloning")); err == nil {
			cmd := s.ownCommand(clones.Command(plan.CloneSource, plan.CloneObjects, plan.WorkspacePath))
			err = clones.Make(ctx, s.init, cmd, s.ownerOf(&plan.Command{User: s.plan.User}), w.Dir)
			_, left := h.killOthers(context.WithoutCancel(ctx), s) // it could keep the repository open
			err = errors.Join(err, left)
		}
		return errors.Join(err, live.Restore(s.process.file), mount.RemovePoint(point), failpoint.At("create/clone"))
	})
}
