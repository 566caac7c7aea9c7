package netns

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/sbxerr"
)

// Unrouted counts what programs in the namespace at path tried to send, and connections
// that they tried to make, to where there is no route: each ended at once with ENETUNREACH.
// In the mode none that is all that they try. It is the kernel's count since the namespace
// was made, for both families (proc_pid_net(5), OutNoRoutes; RFC 4293, ipSystemStatsOutNoRoutes).
func Unrouted(path string) (n uint64, err error) {
	const op = "netns.unrouted"
	ns, err := Open(path)
	if err != nil {
		return 0, sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		v4, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		v6, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil && !os.IsNotExist(err) { // a kernel without IPv6 has none
			return err
		}
		n, err = unrouted(string(v4), string(v6))
		return err
	})
	return n, sbxerr.Wrap(sbxerr.Network, op, err)
}

// unrouted reads the counts of both families. What v6 has none of, there is not.
func unrouted(v4, v6 string) (uint64, error) {
	sum, err := countOf(ipRow(v4, 0), ipRow(v4, 1))
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(strings.NewReader(v6)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) == 2 && f[0] == "Ip6OutNoRoutes" {
			n, err := strconv.ParseUint(f[1], 10, 64)
			return sum + n, err
		}
	}
	return sum, nil
}

// ipRow is the one with names, 0, or that with numbers, 1, of those that begin with "Ip:".
func ipRow(snmp string, which int) []string {
	for lines := bufio.NewScanner(strings.NewReader(snmp)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) == 0 || f[0] != "Ip:" {
			continue
		}
		if which == 0 {
			return f
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
