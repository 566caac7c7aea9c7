package runtime

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// moment is a point of the boot's own clock, in nanoseconds since boot,
// suspended time included (CLOCK_BOOTTIME, clock_gettime(2)). Deadlines are
// kept so: a step of the wall clock neither ends nor prolongs anything, and
// they hold across restarts of the daemon. 0 is never.
type moment int64

func now() moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // fails only for a clock that is not there
	return moment(ts.Nano())
}

// in is the moment d from now, never where d is not set.
func in(d *time.Duration) moment {
	if d == nil || *d == 0 {
		return 0
	}
	return now() + moment(*d)
}

// left is how long m is away, at least 0.
func (m moment) left() time.Duration { return max(0, time.Duration(m-now())) }

// wall shows m by the wall clock, the zero time for never.
func (m moment) wall() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(m - now())).Round(0)
}

// bootID names this boot of the host (random(4)).
func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), sbxerr.Wrap(sbxerr.StateDir, "runtime.boot", err)
}
