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
					counts[i] = unroutedAt(paths[i], own)
					counts[i].Err = sbxerr.Wrap(sbxerr.Network, op, counts[i].Err)
				}
				return nil
			})
		})
	}
	threads.Wait()
	return counts
}

// unroutedAt leaves the calling thread in the namespace at path, or where it was.
func unroutedAt(path string, own unix.Stat_t) Count {
	ns, err := openBeside(path, own)
	if err != nil {
		return Count{Err: err}
	}
	defer ns.Close()
	if err := ns.enter(); err != nil {
		return Count{Err: err}
	}
	v4, err := kernelfile.Read("/proc/thread-self/net/snmp")
	if err != nil {
		return Count{Err: err}
	}
	v6, err := kernelfile.Read("/proc/thread-self/net/snmp6")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6 has none
		return Count{Err: err}
	}
	var c Count
	c.N, err = summed(v4, v6, "Ip", "OutNoRoutes")
	if err == nil {
		c.Unheard, err = summed(v4, v6, "Udp", "NoPorts")
	}
	c.Err = err
	return c
}

// summed is one count of a protocol for both families. What v6 has none of, there is not.
func summed(v4, v6, protocol, name string) (uint64, error) {
	sum, err := countOf(rowOf(v4, protocol, 0), rowOf(v4, protocol, 1), name)
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut("\n"+v6, "\n"+protocol+"6"+name)
	if !found {
		return sum, nil
	}
	number, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
	return sum + n, err
}

// rowOf is the one of a protocol with names, 0, or that with numbers, 1.
func rowOf(snmp, protocol string, which int) []string {
	for line := range strings.Lines(snmp) {
		if !strings.HasPrefix(line, protocol+": ") {
			continue
		}
		if which == 0 {
			return strings.Fields(line)
		}
		which--
	}
	return nil
}

func countOf(names, numbers []string, name string) (uint64, error) {
	i := slices.Index(names, name)
	if i < 0 || len(names) != len(numbers) {
		return 0, fmt.Errorf("the kernel does not count %s: %q", name, names)
	}
	return strconv.ParseUint(numbers[i], 10, 64)
}
