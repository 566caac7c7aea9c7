package ctrd

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// engineSlack is how late timers of the engine's programs may be, in ns. While it
// works, each of them asks every 20 µs whether one of its threads is stuck (Go's
// sysmon), and in a virtual machine that many timers were a fourteenth of what a
// sandbox costs. Most of them live for 10 ms, and none waits for so short a time.
const engineSlack = 1_000_000

// becomeLate lets the timers of the calling thread, and of all that it starts, be late
// (PR_SET_TIMERSLACK, prctl(2)), if what is made for others can be spared that. With
// becomePunctual the thread is as before.
func becomeLate() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_SYS_NICE) == 0 {
		return nil
	}
	return unix.Prctl(unix.PR_SET_TIMERSLACK, engineSlack, 0, 0, 0)
}

// becomePunctual ends what becomeLate began. It cannot fail: 0 is what the thread began with.
func becomePunctual() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }

// makePunctual gives the first thread of pid, the one that becomes the container's
// process, the timers of the calling thread. It may not do so without CAP_SYS_NICE;
// then becomeLate did nothing, and there is nothing to undo.
func makePunctual(pid int) error {
	own, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("read timer slack: %w", err)
	}
	err = os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid), []byte(strconv.Itoa(own)), 0)
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}
