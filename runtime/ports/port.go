package ports

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Max is how many ports one sandbox may publish.
const Max = 16

// Lowest is the first port that programs in a sandbox can listen on: package netns sets it.
const Lowest = 54

// privileged are the ports of a host below this: only root listens on them, by default.
const privileged = 1024

const remedy = "write [ADDRESS:]PORT:PORT, the host's first, such as 8080:8080, [::1]:8080:3000, 0:8080 to have a free one picked, or 0.0.0.0:80:8080@10.0.0.0/8 for clients of a network"

// loopback is where a port is published that names no address.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Port leads from an address of the host to a port inside of a sandbox.
type Port struct {
	Address netip.Addr `json:"address"`
	Host    uint16     `json:"host"` // 0 asks for any that is free
	Inside  uint16     `json:"inside"`
	// Clients are the addresses and CIDRs that may connect, with + between them; empty is any.
	Clients string `json:"clients,omitempty"`
}

// ParseAll reads what one request publishes. All that is wrong is refused at once,
// with code sbxerr.Config.
func ParseAll(texts []string) ([]Port, error) {
	if len(texts) > Max {
		return nil, sbxerr.New(sbxerr.Config, "ports.parse", "%d ports are more than %d", len(texts), Max)
	}
	var all []Port
	var reasons sbxerr.Reasons // two ports can be in each other's way
	for _, text := range texts {
		p, err := parse(text)
		if err != nil {
			reasons.Add(fmt.Errorf("publish %.100q: %w", text, err))
			continue
		}
		for _, q := range all {
			if p.meets(q) {
				reasons.Add(fmt.Errorf("publish %q: port %d of the host is published already, by %q", sbxerr.Clip(text), p.Host, q))
			}
		}
		all = append(all, p)
	}
	return all, sbxerr.WithRemedy(sbxerr.Config, "ports.parse", reasons.Err(), remedy)
}

// parse reads [ADDRESS:]PORT:PORT[@CLIENT[+CLIENT…]].
func parse(text string) (Port, error) {
	p := Port{Address: loopback}
	text, clients, bound := strings.Cut(text, "@")
	outer, inside, found := cutLast(text)
	if !found {
		return p, errors.New("it has no colon")
	}
	host := outer
	if address, port, err := net.SplitHostPort(outer); err == nil {
		if p.Address, err = parseAddress(address); err != nil {
			return p, err
		}
		host = port
	}
	var hostErr, insideErr error
	p.Host, hostErr = parseNumber(host)
	p.Inside, insideErr = parseNumber(inside)
	if insideErr == nil && p.Inside < Lowest {
		insideErr = fmt.Errorf("nothing inside can listen on port %d: programs there have no ports below %d", p.Inside, Lowest)
	}
	var clientsErr error
	if bound {
		p.Clients, clientsErr = parseClients(clients, p.Address)
	}
	return p, errors.Join(hostErr, insideErr, clientsErr)
}

// maxClients bounds the clients that one port names.
const maxClients = 256

// parseClients reads addresses and CIDRs of the family of a listener, and writes them in one form.
func parseClients(text string, listener netip.Addr) (string, error) {
	list := strings.Split(text, "+")
	if len(list) > maxClients {
		return "", fmt.Errorf("%d clients are more than %d", len(list), maxClients)
	}
	for i, c := range list {
		p, err := parsePrefix(c)
		switch {
		case err != nil:
			return "", fmt.Errorf("%.100q is no address and no CIDR of a client", c)
		case p.Masked() != p:
			return "", fmt.Errorf("%q has bits beyond its prefix: write %s", c, p.Masked())
		case p.Addr().Is4() != listener.Is4():
			return "", fmt.Errorf("no client of %s connects to %s: they are of two families", c, listener)
		}
		list[i] = p.String()
	}
	return strings.Join(list, "+"), nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Zone() != "" || a.Is4In6() {
			return netip.Prefix{}, errors.New("it has a zone")
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// ClientList are p's clients as CIDRs, nil for any.
func (p Port) ClientList() []string {
	if p.Clients == "" {
		return nil
	}
	return strings.Split(p.Clients, "+")
}

// Prefixes are p's clients. A record that holds something else lets nobody in.
func (p Port) Prefixes() (list []netip.Prefix) {
	for _, c := range p.ClientList() {
		prefix, err := netip.ParsePrefix(c)
		if err != nil {
			return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 32)}
		}
		list = append(list, prefix)
	}
	return list
}

// ClientsOf are the clients of each of list.
func ClientsOf(list []Port) (all [][]netip.Prefix) {
	for _, p := range list {
		all = append(all, p.Prefixes())
	}
	return all
}

// TakeClients is list with the clients that the same ports have in from.
func TakeClients(list, from []Port) []Port {
	list = slices.Clone(list)
	for i, p := range list {
		if at := slices.IndexFunc(from, p.same); at >= 0 {
			list[i].Clients = from[at].Clients
		}
	}
	return list
}

// WithClients is have with the clients of texts, which name the same ports, all of them and as
// they were opened. Others are refused with code sbxerr.Config.
func WithClients(have []Port, texts []string) ([]Port, error) {
	asked, err := ParseAll(texts)
	if err != nil {
		return nil, err
	}
	var reasons sbxerr.Reasons
	for _, p := range asked {
		if !slices.ContainsFunc(have, p.same) {
			reasons.Add(fmt.Errorf("publish %q: the sandbox does not publish it, and a live one gets no ports", p))
		}
	}
	for _, p := range have {
		if !slices.ContainsFunc(asked, p.same) {
			reasons.Add(fmt.Errorf("publish: port %q stays, and is not named", p))
		}
	}
	if err := reasons.Err(); err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.Config, "ports.clients", err, "name each port as it is open, with its clients after an @, such as 127.0.0.1:8080:80@10.0.0.0/8")
	}
	return TakeClients(have, asked), nil
}

// same reports whether p and q are one port, whoever may connect.
func (p Port) same(q Port) bool {
	q.Clients = p.Clients
	return p == q
}

func cutLast(text string) (before, after string, found bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

func parseAddress(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return a, fmt.Errorf("%.100q is no address", text)
	case a.Zone() != "" || a.Is4In6() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return a, fmt.Errorf("nothing can listen on the address %q", sbxerr.Clip(text))
	}
	return a, nil
}

func parseNumber(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || (len(text) > 1 && text[0] == '0') {
		return 0, fmt.Errorf("%.100q is no port", text)
	}
	return uint16(n), nil
}

// meets reports whether p and q cannot both be listened on.
func (p Port) meets(q Port) bool {
	if p.Host != q.Host || p.Host == 0 || p.Address.Is4() != q.Address.Is4() {
		return false
	}
	return p.Address == q.Address || p.Address.IsUnspecified() || q.Address.IsUnspecified()
}

// Local reports whether only the host itself can connect to p.
func (p Port) Local() bool { return p.Address.IsLoopback() }

// Privileged reports whether listening on p is a right of root.
func (p Port) Privileged() bool { return p.Host != 0 && p.Host < privileged }

func (p Port) listener() string { return netip.AddrPortFrom(p.Address, p.Host).String() }

// String is p as a person reads it: 127.0.0.1:8080 -> 3000.
func (p Port) String() string {
	text := fmt.Sprintf("%s -> %d", p.listener(), p.Inside)
	if p.Clients != "" {
		text += " for " + p.Clients
	}
	return text
}
