package doctor

import (
	"context"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/runtime"
)

// examineDisks looks whether sandboxes can have disks. None needs one that does not ask for it.
func examineDisks(context.Context, Host) []runtime.Check {
	if err := disk.Probe(); err != nil {
		return problem("disks", Warn, sbxerr.Disk, err)
	}
	return ok("disks", "mkfs.ext4 and loop devices are there")
}
