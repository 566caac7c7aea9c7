package runtime

import (
	"context"
	goruntime "runtime"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
)

// planner answers requests with what this daemon has.
func (h *host) planner(ctx context.Context) plan.Planner {
	settings := h.settings()
	return plan.Planner{
		ID:         newID(),
		Profiles:   settings.Profiles,
		Workspaces: settings.Workspaces,
		Network:    h.opts.Network,
		CPUs:       goruntime.NumCPU(),
		Image:      func(ref string) (images.Stored, error) { return h.images.FindForSandbox(ctx, ref) },
		RootImage:  func(ref string) (images.Stored, error) { return h.images.FindOfRoot(ctx, ref) },
		Template:   func(profile string) (images.Stored, error) { return h.templates.Image(ctx, profile) },
		Languages:  settings.Languages,
		User:       func(img images.Stored, name string) (plan.Account, error) { return h.images.Account(ctx, img, name) },
		Disk:       h.CheckRoom,
		DiskBytes:  h.opts.DiskBytes,
		Slots:      h.slots(),
	}
}

// slots are needed where somebody else than root may have a workspace. All
// sandboxes then have them, so that a ready one serves everybody.
func (h *host) slots() []uint32 {
	if !h.settings().Peers.Open() {
		return nil
	}
	return mount.GroupSlotIDs()
}
