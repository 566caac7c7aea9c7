package policy

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Most is how many prefixes one port admits.
const Most = 256

// Access is who may connect to one port. Its zero value is nobody.
type Access struct {
	Any     bool
	Clients []netip.Prefix // sorted, and none contains another
	Beyond  int            // prefixes above Most that are left out, or more
}

// Admits says whether a client may connect.
func (a Access) Admits(client netip.Addr) bool {
	client = client.Unmap()
	return a.Any || slices.ContainsFunc(a.Clients, func(p netip.Prefix) bool { return p.Contains(client) })
}

// Texts are the clients of a listener as the daemon has them: none is anybody. Nobody is an address
// that no client has.
func (a Access) Texts(listener netip.Addr) []string {
	if a.Any {
		return nil
	}
	clients := a.Clients
	if len(clients) == 0 {
		nowhere := netip.IPv4Unspecified()
		if listener.Is6() {
			nowhere = netip.IPv6Unspecified()
		}
		clients = []netip.Prefix{netip.PrefixFrom(nowhere, nowhere.BitLen())}
	}
	texts := make([]string, len(clients))
	for i, c := range clients {
		texts[i] = c.String()
	}
	return texts
}

// Publish is a port of the host that leads inside, in the daemon's syntax.
func (a Access) Publish(listener netip.Addr, outer, inside uint16) string {
	text := net.JoinHostPort(listener.String(), strconv.Itoa(int(outer))) + ":" + strconv.Itoa(int(inside))
	if clients := a.Texts(listener); clients != nil {
		text += "@" + strings.Join(clients, "+")
	}
	return text
}
