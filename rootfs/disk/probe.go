package disk

import (
	"errors"
	"fmt"
	"os"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Probe says why this host can have no disks, or nil. It changes nothing.
func Probe() error {
	_, err := find(mkfs)
	var remedy string
	if err != nil {
		remedy = "install e2fsprogs on the host, or ask for no disk and a read-only root"
	}
	control, loopErr := os.OpenFile(loopControl, os.O_RDWR, 0)
	if loopErr == nil {
		loopErr = control.Close()
	} else {
		loopErr = fmt.Errorf("loop devices cannot be had: %w", loopErr)
		remedy = "load the kernel's module loop (modprobe loop) and let the daemon open " + loopControl + ", or ask for no disk and a read-only root"
	}
	if err = errors.Join(err, loopErr); err != nil {
		return sbxerr.WithRemedy(sbxerr.Disk, "disk.probe", err, remedy)
	}
	return nil
}
