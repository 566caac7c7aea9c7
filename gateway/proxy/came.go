package proxy

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tick is more than the kernel's clock of ticks is late, at 100 Hz and more.
const tick = 10 * time.Millisecond

// came says between which times the kernel took the connection c, which nothing was
// sent on yet: it may have waited to be accepted, and whoever made it may be gone.
// Both are zero where the kernel does not say.
func came(c *net.TCPConn) (after, before time.Time) {
	raw, err := c.SyscallConn()
	if err != nil {
		return time.Time{}, time.Time{}
	}
	var info *unix.TCPInfo
	begin := time.Now()
	if inner := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); inner != nil || err != nil {
		return time.Time{}, time.Time{}
	}
	end := time.Now()
	age := time.Duration(info.Last_data_sent) * time.Millisecond // of a new one, since it was made
	after, before = begin.Add(-age-tick), end.Add(-age+tick)
	if before.After(end) {
		before = end
	}
	return after, before
}
