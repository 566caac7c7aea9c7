package config

import (
	"errors"
	"fmt"
	"net/netip"
)

// Network is how names are resolved for the sandboxes that have a network.
type Network struct {
	DNS    []string          `yaml:"dns" json:"dns" jsonschema:"description=Resolvers to ask\\, ADDRESS or ADDRESS:PORT; absent are those of the host"`
	Map    map[string]string `yaml:"map" json:"map" jsonschema:"description=Names that lead to an address of the operator's choice in all sandboxes with a network: NAME to ADDRESS[:PORT]"`
	Bridge Bridge            `yaml:"bridge" json:"bridge"`
}

// Bridge lets sandboxes have the network mode bridge.
type Bridge struct {
	Subnet string   `yaml:"subnet" json:"subnet" jsonschema:"description=Private range of IPv4 addresses for them\\, with one for each of ids.blocks; empty does not offer the mode,example=10.87.0.0/16"`
	DNS    []string `yaml:"dns" json:"dns" jsonschema:"description=IPv4 addresses of the resolvers that these sandboxes ask themselves\\, on port 53; they may be private"`
}

// Prefix returns the subnet, none where the mode is not offered.
func (b Bridge) Prefix() (netip.Prefix, error) {
	if b.Subnet == "" {
		return netip.Prefix{}, nil
	}
	p, err := netip.ParsePrefix(b.Subnet)
	if err != nil {
		return p, fmt.Errorf("network.bridge.subnet: %q is no range of addresses, give one such as 10.87.0.0/16", b.Subnet)
	}
	return p, nil
}

// Resolvers returns the addresses of DNS.
func (b Bridge) Resolvers() ([]netip.Addr, error) {
	var list []netip.Addr
	var errs []error
	for i, text := range b.DNS {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("network.bridge.dns[%d]: %q is no address, give one such as 192.0.2.53", i, text))
			continue
		}
		list = append(list, addr)
	}
	return list, errors.Join(errs...)
}

// ProfileNetwork says how far the sandboxes of a profile reach.
type ProfileNetwork struct {
	Mode  string            `yaml:"mode" json:"mode" jsonschema:"enum=none,enum=allow,enum=open,enum=bridge"`
	Allow []string          `yaml:"allow" json:"allow" jsonschema:"description=Destinations that may be reached\\, HOST[:PORT][+PORT…][\\,private]"`
	Deny  []string          `yaml:"deny" json:"deny" jsonschema:"description=Destinations that may not\\, whatever else says so"`
	Map   map[string]string `yaml:"map" json:"map" jsonschema:"description=As network.map\\, for this profile"`
}

// Servers returns the resolvers to ask, none for those of the host.
func (n Network) Servers() ([]netip.AddrPort, error) {
	var servers []netip.AddrPort
	var errs []error
	for i, text := range n.DNS {
		server, err := parseServer(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("network.dns[%d]: %q is no address, give one such as 192.0.2.53 or 192.0.2.53:53", i, text))
			continue
		}
		servers = append(servers, server)
	}
	return servers, errors.Join(errs...)
}

func parseServer(text string) (netip.AddrPort, error) {
	const port = 53
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr, port), nil
	}
	return netip.ParseAddrPort(text)
}
