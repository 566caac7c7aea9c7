package egress

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// hostServers reads the resolvers that the host itself uses from a file in the form of
// resolv.conf(5). Search domains do not count: names are never completed.
func hostServers(path string) (servers []netip.AddrPort, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.EgressResolve, "egress.host_servers", fmt.Errorf("read the host's resolvers: %w", err))
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		addr, err := netip.ParseAddr(words[1])
		if err != nil {
			return nil, sbxerr.New(sbxerr.EgressResolve, "egress.host_servers", "nameserver %q in %s is no address", words[1], path)
		}
		servers = append(servers, netip.AddrPortFrom(addr, 53))
	}
	return servers, nil
}
