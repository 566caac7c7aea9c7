// Package clock has the boot's own clock, by which deadlines are kept.
package clock

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Moment is a point of the boot's own clock, in nanoseconds since boot,
// suspended time included (CLOCK_BOOTTIME, clock_gettime(2)). Deadlines are
// kept so: a step of the wall clock neither ends nor prolongs anything, and
// they hold across restarts of the daemon. 0 is never.
type Moment int64

// Now is the moment of the call.
func Now() Moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // fails only for a clock that is not there
	return Moment(ts.Nano())
}

// In is the moment d from now, never where d is not set.
func In(d *time.Duration) Moment {
	if d == nil || *d == 0 {
		return 0
	}
	return Now() + Moment(*d)
}

// Left is how long m is away, at least 0.
func (m Moment) Left() time.Duration { return max(0, time.Duration(m-Now())) }

// Remaining is Left, nil for never.
func (m Moment) Remaining() *time.Duration {
	if m == 0 {
		return nil
	}
	left := m.Left()
	return &left
}

// Wall shows m by the wall clock, the zero time for never.
func (m Moment) Wall() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(m - Now())).Round(0)
}

// BootID names this boot of the host (random(4)).
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), sbxerr.Wrap(sbxerr.StateDir, "runtime.boot", err)
}
