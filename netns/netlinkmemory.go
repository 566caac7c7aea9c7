package netns

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/kernelfile"
	"github.com/caisson-run/caisson/sbxerr"
)

// NetlinkMemory is how many bytes the netlink sockets of the namespace at path hold in
// their queues. The kernel charges them to no cgroup.
func NetlinkMemory(path string) (bytes int64, err error) {
	const op = "netns.netlink_memory"
	ns, err := Open(path)
	if err != nil {
		return 0, sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		text, err := kernelfile.Read("/proc/thread-self/net/netlink")
		if err == nil {
			bytes, err = sumNetlink(text)
		}
		return err
	})
	return bytes, sbxerr.Wrap(sbxerr.Network, op, err)
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
