package netns

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/kernelfile"
	"github.com/caisson-run/caisson/sbxerr"
)

// NetlinkMemory is how many bytes the netlink sockets hold in their queues that are in the
// namespace of a process or thread. The kernel charges them to no cgroup.
func NetlinkMemory(pid int) (bytes int64, err error) {
	text, err := kernelfile.Read(fmt.Sprintf("/proc/%d/net/netlink", pid))
	if err == nil {
		bytes, err = sumNetlink(text)
	}
	return bytes, sbxerr.Wrap(sbxerr.Network, "netns.netlink_memory", err)
}

// sumNetlink adds up Rmem and Wmem of lines of /proc/net/netlink, below their heading.
func sumNetlink(text string) (bytes int64, err error) {
	_, rows, _ := strings.Cut(text, "\n")
	for line := range strings.Lines(rows) {
		f := strings.Fields(line) // sk, protocol, port, groups, received, sent
		if len(f) < 6 {
			return 0, fmt.Errorf("read a netlink socket: %q has too few fields", line)
		}
		for _, field := range f[4:6] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read a netlink socket: %w", err)
			}
			bytes += n
		}
	}
	return bytes, nil
}
