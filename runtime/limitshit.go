package runtime

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/plan"
)

// hintBytes is how much of the end of a failed command's standard error is searched for a
// hint.
const hintBytes = 4 << 10

// lookAtRoom notes which tmpfs and volumes of the sandbox are full at the end of a command that
// failed, and whether its disk is. They are gone when PID 1 has ended.
func (h *host) lookAtRoom(s *sandbox, end *ending) {
	if code, _ := exitCode(*end); code == 0 || !end.Known {
		return
	}
	for _, u := range h.usedTmpfs(s) {
		if u.Full {
			end.FullTmpfs = append(end.FullTmpfs, u.Point)
		}
	}
	r := s.kept()
	var err error
	if end.FullVolumes, err = h.volumes.Full(r.OwnerUID, plan.VolumesIn(r.Mounts)); err != nil {
		h.log.Debug("look at the volumes of a sandbox", "sandbox", s.id, "err", err)
	}
	if r.Limits.DiskBytes != 0 {
		use, err := disk.UseOf(h.paths.disk(s.id))
		if err != nil { // it has ended meanwhile
			h.log.Debug("look at the disk of a sandbox", "sandbox", s.id, "err", err)
		}
		end.FullDisk = err == nil && use.Full()
	}
}

// usedTmpfs returns how full each tmpfs of s is, as far as that can be found out. A mount in
// a bind is not looked at: its path is the sandbox's.
func (h *host) usedTmpfs(s *sandbox) []mount.TmpfsUse {
	s.mu.Lock()
	spec, process := s.spec, s.process
	s.mu.Unlock()
	if spec == nil || process == nil {
		return nil
	}
	own := *spec
	own.Mounts = oci.RuntimeMounts(spec)
	used, err := mount.UsedTmpfs(process.file, slices.Sorted(maps.Keys(plan.TmpfsSizes(&own))))
	homes, homesErr := h.usedHomes(s.id, own.Mounts)
	used = append(used, homes...)
	if err := errors.Join(err, homesErr); err != nil { // it has ended meanwhile, or has no mount namespace to enter
		h.log.Debug("look at the tmpfs of a sandbox", "sandbox", s.id, "err", err)
	}
	return used
}

// limitsHit names the limits that r tells of, and the disk where it was full, as the event
// limit.hit does.
func limitsHit(r *Result, fullDisk bool) (hit []string) {
	for _, l := range []struct {
		name string
		hit  bool
	}{
		{"memory", r.OOMKilled}, {"pids", r.PIDsLimitHit}, {"cpu", r.ThrottledPeriods > 0}, {"tmpfs", len(r.FullTmpfs) > 0}, {"disk", fullDisk}, {"volume", len(r.FullVolumes) > 0},
	} {
		if l.hit {
			hit = append(hit, l.name)
		}
	}
	return hit
}

// saysReadOnly reports whether a stream ends in the words of EROFS (errno(3)). The command
// may write them for any reason: it is a hint.
func saysReadOnly(ctx context.Context, stream *output.Store) bool {
	total, _ := stream.Total()
	var tail bytes.Buffer
	if _, err := stream.Follow(ctx, &tail, max(0, total-hintBytes), false); err != nil {
		return false // a hint less
	}
	return bytes.Contains(tail.Bytes(), []byte("Read-only file system"))
}
