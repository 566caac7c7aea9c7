package traffic

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// Named keeps the address that a name got.
func (l *Log) Named(sandbox string, name policy.Name, addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(sandbox, appendLines(l.files.Names(sandbox), []byte(addr.String()+" "+string(name)+"\n")))
}

// Names returns the addresses that the names of a sandbox got. A line that is none is
// left out, with a warning: the others keep their meaning.
func (l *Log) Names(sandbox string) (map[policy.Name]netip.Addr, error) {
	owners, last := map[netip.Addr]policy.Name{}, map[policy.Name]netip.Addr{}
	var bad []error
	for line, err := range lines(l.files.Names(sandbox), 0) {
		if err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, "traffic.names", err)
		}
		addr, name, err := parseNamed(line)
		if owner, taken := owners[addr]; err == nil && taken && owner != name {
			err = errors.New("the address is that of another name")
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("line %.300q: %w", line, err))
			name = ""
		}
		if addr.IsValid() {
			owners[addr] = name
		}
		last[name] = addr
	}
	if len(bad) > 0 {
		l.log.Warn("leave out addresses of names", "sandbox", sandbox, "lines", len(bad), "err", bad[0])
	}
	return namesOf(owners, last), nil
}

// parseNamed reads a line of Named. The address is valid if it may have been given,
// even if the rest is not.
func parseNamed(line []byte) (netip.Addr, policy.Name, error) {
	before, after, _ := bytes.Cut(line, []byte(" "))
	addr, err := netip.ParseAddr(string(before))
	if err == nil && !policy.Pool.Contains(addr) {
		err = fmt.Errorf("the address is not in %s", policy.Pool)
	}
	if err != nil {
		return netip.Addr{}, "", err
	}
	name, err := policy.ParseName(string(after))
	return addr, name, err
}

// namesOf are the names with the address that each got last. Somebody in the sandbox
// may remember the other addresses too: they have names that do not exist, so that they
// are not given to others.
func namesOf(owners map[netip.Addr]policy.Name, last map[policy.Name]netip.Addr) map[policy.Name]netip.Addr {
	names := map[policy.Name]netip.Addr{}
	for addr, name := range owners {
		if name == "" || last[name] != addr {
			name = policy.Name("lost-" + strings.ReplaceAll(addr.String(), ".", "-") + ".invalid") // RFC 6761
		}
		names[name] = addr
	}
	return names
}
