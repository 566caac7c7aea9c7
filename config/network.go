package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Network is how names are resolved for the sandboxes that have a network.
type Network struct {
	DNS []string `yaml:"dns" json:"dns" jsonschema:"description=Resolvers to ask\\, ADDRESS or ADDRESS:PORT; absent are those of the host"`
	// DNSAllowed is what --dns may name.
	DNSAllowed []string          `yaml:"dns_allowed" json:"dns_allowed" jsonschema:"description=Resolvers that a request may choose instead\\, ADDRESS or ADDRESS:PORT"`
	Map        map[string]string `yaml:"map" json:"map" jsonschema:"description=Names that lead to an address of the operator's choice in all sandboxes with a network: NAME to ADDRESS[:PORT]"`
	Bridge     Bridge            `yaml:"bridge" json:"bridge"`
	Proxy      UpstreamProxy     `yaml:"upstream_proxy" json:"upstream_proxy"`
}

// UpstreamProxy is the proxy through which this host has to leave its network.
type UpstreamProxy struct {
	URL         string   `yaml:"url" json:"url" jsonschema:"description=Proxy through which sandboxes reach what is public: http://HOST:PORT (by CONNECT) or socks5://HOST:PORT; empty is none,example=http://proxy.example.com:3128"`
	Credentials string   `yaml:"credentials" json:"credentials" jsonschema:"description=File of root's alone that holds USER:PASSWORD,example=file:/etc/caisson/proxy-credentials"`
	Except      []string `yaml:"except" json:"except" jsonschema:"description=What is reached without the proxy: names\\, *.NAME\\, addresses and CIDRs"`
}

// CredentialsFile returns the path of the file with the credentials, empty for none.
func (u UpstreamProxy) CredentialsFile() string {
	return strings.TrimPrefix(u.Credentials, fileReference)
}

// fileReference is how a secret is named that lies in a file.
const fileReference = "file:"

func (n Network) validateProxy() error {
	const key = "network.upstream_proxy"
	u := n.Proxy
	var errs []error
	if u.URL == "" && (u.Credentials != "" || len(u.Except) > 0) {
		errs = append(errs, fmt.Errorf("%s.url: is empty, but credentials or exceptions are given: give one such as http://proxy.example.com:3128", key))
	}
	if u.URL != "" && n.Bridge.Subnet != "" {
		errs = append(errs, fmt.Errorf("%s.url and network.bridge.subnet: the mode bridge reaches what is public without a proxy, give one of the two", key))
	}
	if path, isFile := strings.CutPrefix(u.Credentials, fileReference); u.Credentials != "" {
		if !isFile { // it may be the credentials themselves
			errs = append(errs, fmt.Errorf("%s.credentials: is no reference to a file, give one such as file:/etc/caisson/proxy-credentials", key))
		} else {
			errs = append(errs, absolute(key+".credentials", path))
		}
	}
	return errors.Join(errs...)
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
	Mode  string            `yaml:"mode" json:"mode" jsonschema:"description=Absent is allow where allow names something\\, else none,enum=none,enum=allow,enum=open,enum=bridge"`
	Allow []string          `yaml:"allow" json:"allow" jsonschema:"description=Destinations that may be reached\\, [METHOD[\\,METHOD…] ]HOST[:PORT][+PORT…][/PATH][\\,private][\\,opaque]"`
	Deny  []string          `yaml:"deny" json:"deny" jsonschema:"description=Destinations that may not\\, whatever else says so"`
	Map   map[string]string `yaml:"map" json:"map" jsonschema:"description=As network.map\\, for this profile"`
	// AllowECH is off where it is absent.
	AllowECH bool `yaml:"allow_ech" json:"allow_ech" jsonschema:"description=Let TLS clients encrypt the name that they ask for (encrypted_client_hello)"`
}

// Servers returns the resolvers to ask, none for those of the host.
func (n Network) Servers() ([]netip.AddrPort, error) { return servers("network.dns", n.DNS) }

// Choices returns the resolvers that a request may choose.
func (n Network) Choices() ([]netip.AddrPort, error) {
	return servers("network.dns_allowed", n.DNSAllowed)
}

func servers(key string, texts []string) ([]netip.AddrPort, error) {
	var servers []netip.AddrPort
	var errs []error
	for i, text := range texts {
		server, err := parseServer(text)
		if err != nil || server.Port() == 0 {
			errs = append(errs, fmt.Errorf("%s[%d]: %q is no ADDRESS or ADDRESS:PORT, give one such as 192.0.2.53 or 192.0.2.53:53", key, i, text))
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
