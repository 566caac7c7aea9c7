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

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/kernelfile"
)

// Count is what was counted in one namespace, or why it could not be.
type Count struct {
	N   uint64
	Err error
}

// Unrouted counts what programs in each of the namespaces at paths tried to send, and
// connections that they tried to make, to where there is no route: each ended at once with
// ENETUNREACH. In the mode none that is all that they try. It is the kernel's count since
// the namespace was made, for both families (proc_pid_net(5), OutNoRoutes; RFC 4293,
// ipSystemStatsOutNoRoutes).
//
// A thread for each processor enters one namespace after the other.
func Unrouted(paths ...string) []Count {
	const op = "netns.unrouted"
	counts := make([]Count, len(paths))
	own, err := hostNamespace()
	if err != nil {
		for i := range counts {
			counts[i].Err = sbxerr.Wrap(sbxerr.Network, op, err)
		}
		return counts
	}
	var next atomic.Int64
	var threads sync.WaitGroup
	for range min(len(paths), goruntime.GOMAXPROCS(0)) {
		threads.Go(func() {
			_ = onThread(func() error { // each error is that of a path
				for i := next.Add(1) - 1; i < int64(len(paths)); i = next.Add(1) - 1 {
					n, err := unroutedAt(paths[i], own)
					counts[i] = Count{n, sbxerr.Wrap(sbxerr.Network, op, err)}
				}
				return nil
			})
		})
	}
	threads.Wait()
	return counts
}

// unroutedAt leaves the calling thread in the namespace at path, or where it was.
func unroutedAt(path string, own unix.Stat_t) (uint64, error) {
	ns, err := openBeside(path, own)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	if err := ns.enter(); err != nil {
		return 0, err
	}
	v4, err := kernelfile.Read("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, err
	}
	v6, err := kernelfile.Read("/proc/thread-self/net/snmp6")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6 has none
		return 0, err
	}
	return unrouted(v4, v6)
}

// unrouted reads the counts of both families. What v6 has none of, there is not.
func unrouted(v4, v6 string) (uint64, error) {
	sum, err := countOf(ipRow(v4, 0), ipRow(v4, 1))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut("\n"+v6, "\nIp6OutNoRoutes")
	if !found {
		return sum, nil
	}
	number, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
	return sum + n, err
}

// ipRow is the one with names, 0, or that with numbers, 1, of those that begin with "Ip:".
func ipRow(snmp string, which int) []string {
	for line := range strings.Lines(snmp) {
		if !strings.HasPrefix(line, "Ip: ") {
			continue
		}
		if which == 0 {
			return strings.Fields(line)
		}
		which--
	}
	return nil
}

func countOf(names, numbers []string) (uint64, error) {
	i := slices.Index(names, "OutNoRoutes")
	if i < 0 || len(names) != len(numbers) {
		return 0, fmt.Errorf("the kernel does not count what has no route: %q", names)
	}
	return strconv.ParseUint(numbers[i], 10, 64)
}
