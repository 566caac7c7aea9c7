package netns

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/kernelfile"
)

// Count is what was counted in one namespace, or why it could not be.
type Count struct {
	N uint64
	// Unheard counts datagrams to ports of the namespace's own at which nobody listens. In
	// the mode none lookups are such: the C libraries ask 127.0.0.1 where no resolver is set.
	Unheard uint64
	Err     error
}

// Unrouted counts what programs in each of the namespaces at paths tried to send, and
// connections that they tried to make, to where there is no route: each ended at once with
// ENETUNREACH. In the mode none that is all that they try. It is the kernel's count since
// the namespace was made, for both families (proc_pid_net(5), OutNoRoutes; RFC 4293,
// ipSystemStatsOutNoRoutes). Unheard is its NoPorts (RFC 4113, udpNoPorts).
//
// A thread for each processor enters one namespace after the other.
func Unrouted(paths ...string) []Count {
	const op = "netns.unrouted"
	counts := make([]Count, len(paths))
	var next atomic.Int64
	var threads sync.WaitGroup
	for range min(len(paths), goruntime.GOMAXPROCS(0)) {
		threads.Go(func() {
			_ = onThread(func() error { // each error is that of a path
				for i := next.Add(1) - 1; i < int64(len(paths)); i = next.Add(1) - 1 {
					n, unheard, err := unroutedAt(paths[i])
					counts[i] = Count{n, unheard, sbxerr.Wrap(sbxerr.Network, op, err)}
				}
				return nil
			})
		})
	}
	threads.Wait()
	return counts
}

// unroutedAt leaves the calling thread in the namespace at path, or where it was.
func unroutedAt(path string) (n, unheard uint64, err error) {
	ns, err := Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer ns.Close()
	if err := ns.enter(); err != nil {
		return 0, 0, err
	}
	v4, err := kernelfile.Read("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, 0, err
	}
	v6, err := kernelfile.Read("/proc/thread-self/net/snmp6")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6 has none
		return 0, 0, err
	}
	n, errN := summed(v4, v6, "Ip", "OutNoRoutes")
	unheard, errUnheard := summed(v4, v6, "Udp", "NoPorts")
	return n, unheard, errors.Join(errN, errUnheard)
}

// summed is one count of a protocol for both families. If v6 has none, it is that of v4.
func summed(v4, v6, protocol, name string) (uint64, error) {
	var rows [][]string // the one with names, and the one with numbers
	for line := range strings.Lines(v4) {
		if strings.HasPrefix(line, protocol+": ") {
			rows = append(rows, strings.Fields(line))
		}
	}
	if len(rows) != 2 || len(rows[0]) != len(rows[1]) || !slices.Contains(rows[0], name) {
		return 0, fmt.Errorf("the kernel does not count %s %s: %q", protocol, name, rows)
	}
	sum, err := strconv.ParseUint(rows[1][slices.Index(rows[0], name)], 10, 64)
	for line := range strings.Lines(v6) {
		if number, is := strings.CutPrefix(line, protocol+"6"+name); is && err == nil {
			var n uint64
			n, err = strconv.ParseUint(strings.TrimSpace(number), 10, 64)
			return sum + n, err
		}
	}
	return sum, err
}
