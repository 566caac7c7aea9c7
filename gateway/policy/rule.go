package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Action is the effect of a rule.
type Action string

// The actions.
const (
	ActAllow Action = "allow"
	ActDeny  Action = "deny"
)

// Rule is one parsed rule: of names if Name is set, else of addresses.
type Rule struct {
	Action   Action
	Name     Name         // the host, or the base name of the wildcard
	Wildcard bool         // *.Name
	Prefix   netip.Prefix // without host bits
	Ports    []uint16     // sorted; none is every port, and only for a rule that denies
	Private  bool         // may lead to addresses that are not public
	Opaque   bool         // connections to readPorts are not read
	Methods  []string     // of requests; none are all
	Path     string       // a pattern of paths, as those of routes; empty are all
	pattern  pattern      // Path
}

// The bounds of one rule.
const (
	maxRule  = 512 // bytes
	maxPorts = 64
)

// defaultPorts are the ports of a rule that allows and names none.
var defaultPorts = []uint16{80, 443}

// readPorts are those on which a client has to name its host, in HTTP or TLS.
var readPorts = defaultPorts

const exampleRule = "write for example github.com:443+22, *.example.com, or 10.1.0.0/16:5432,private"

// ParseRule reads one rule as [METHOD[,METHOD…] ]HOST[:PORT][+PORT…][/PATH][,private][,opaque]. It
// refuses others with code sbxerr.NetPolicy, a reason and an example.
func ParseRule(action Action, text string) (Rule, error) {
	r, err := parse(action, text)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return Rule{}, sbxerr.WithRemedy(sbxerr.NetPolicy, "policy.rule", fmt.Errorf("%s rule %q: %w", action, sbxerr.Clip(text), err), remedyFor(err, exampleRule))
	}
	return r, nil
}

func parse(action Action, text string) (Rule, error) {
	r := Rule{Action: action}
	if action != ActAllow && action != ActDeny {
		return r, errors.New("neither allows nor denies")
	}
	text, err := r.parseMethods(text)
	if err == nil {
		err = checkForm(text)
	}
	if err != nil {
		return r, err
	}
	if everyHost(text) {
		return r, action.errEveryHost()
	}
	dest, options, hasOptions := strings.Cut(text, ",")
	if action == ActAllow && looksIPv6(dest) {
		dest = "[" + dest + "]" // it is refused, but not for the brackets that it lacks
	}
	if dest, err = r.parsePath(dest); err != nil {
		return r, err
	}
	host, ports, hasPorts, err := splitPorts(dest)
	if err != nil {
		return r, err
	}
	if err := r.parseHost(host); err != nil {
		return r, err
	}
	if err := r.parsePorts(ports, hasPorts); err != nil {
		return r, err
	}
	if hasOptions {
		err = r.parseOptions(options)
	}
	return r, err
}

// checkForm refuses text that is no rule at all.
func checkForm(text string) error {
	switch {
	case text == "":
		return errors.New("is empty")
	case len(text) > maxRule:
		return fmt.Errorf("is longer than %d bytes", maxRule)
	case strings.ContainsAny(text, "\x00\r\n\t "):
		return errors.New("holds white space or a NUL")
	case strings.Contains(text, "://"):
		if u, err := url.Parse(text); err == nil && u.Hostname() != "" {
			return fmt.Errorf("is a URL; write the host alone: %s", sbxerr.Clip(u.Hostname()))
		}
		return errors.New("is a URL; write the host alone")
	}
	return nil
}

func everyHost(text string) bool {
	return text == "*" || strings.HasPrefix(text, "*:") || strings.HasPrefix(text, "*,")
}

func (a Action) errEveryHost() error {
	if a == ActDeny {
		return errors.New("covers every host; leave out the rules that allow, or use the network mode none")
	}
	return errors.New("covers every host; for that use the network mode open")
}

// splitPorts parts HOST from PORT[+PORT…]. The host keeps no brackets.
func splitPorts(dest string) (host, ports string, hasPorts bool, err error) {
	if inner, ok := strings.CutPrefix(dest, "["); ok {
		host, rest, closed := strings.Cut(inner, "]")
		if ports, hasPorts = strings.CutPrefix(rest, ":"); !closed || rest != "" && !hasPorts {
			return "", "", false, errors.New("has brackets that do not close around the address")
		}
		if !strings.Contains(host, ":") {
			return "", "", false, errors.New("has brackets around what is no IPv6 address")
		}
		return host, ports, hasPorts, nil
	}
	host, ports, hasPorts = strings.Cut(dest, ":")
	if strings.Contains(ports, ":") {
		if looksIPv6(dest) {
			return "", "", false, fmt.Errorf("holds an IPv6 address without brackets: write [%s], and a port as [%[1]s]:443", sbxerr.Clip(dest))
		}
		return "", "", false, errors.New("has two colons; several ports are joined by +: HOST:443+22")
	}
	return host, ports, hasPorts, nil
}

func looksIPv6(s string) bool {
	if !strings.Contains(s, ":") {
		return false
	}
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	_, err := netip.ParseAddr(s)
	return err == nil
}

func (r *Rule) parseHost(host string) error {
	if strings.Contains(host, "/") {
		return r.parsePrefix(host)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return r.setPrefix(addr, addr.BitLen())
	}
	if strings.Contains(host, ":") {
		return errors.New("has brackets around what is no IPv6 address")
	}
	base, wildcard := strings.CutPrefix(host, "*.")
	name, err := canonical(base)
	if err != nil {
		return fmt.Errorf("its host %w", err)
	}
	r.Name, r.Wildcard = name, wildcard
	return nil
}

func (r *Rule) parsePrefix(host string) error {
	p, err := netip.ParsePrefix(host)
	if err != nil {
		return errors.New("its addresses are not ADDRESS/BITS, as in 10.1.0.0/16")
	}
	if err := r.setPrefix(p.Addr(), p.Bits()); err != nil {
		return err
	}
	if p != p.Masked() {
		return fmt.Errorf("its addresses have bits set after the first %d; did you mean %s?", p.Bits(), p.Masked())
	}
	return nil
}

func (r *Rule) setPrefix(addr netip.Addr, bits int) error {
	switch {
	case addr.Zone() != "":
		return errors.New("its address has a zone")
	case addr.Is4In6():
		return fmt.Errorf("its address is an IPv4 one inside IPv6: write %s", addr.Unmap())
	}
	r.Prefix = netip.PrefixFrom(addr, bits)
	if why := noWay(r.Prefix); why != "" && r.Action == ActAllow && bits > 0 { // of all addresses there is more to say
		return errors.New(why)
	}
	return nil
}

func (r *Rule) parsePorts(text string, has bool) error {
	if !has {
		switch {
		case r.scoped():
			r.Ports = []uint16{scopedPort}
		case r.Action == ActAllow:
			r.Ports = slices.Clone(defaultPorts)
		}
		return nil
	}
	fields := strings.Split(text, "+")
	if len(fields) > maxPorts {
		return fmt.Errorf("names more than %d ports", maxPorts)
	}
	r.Ports = make([]uint16, 0, len(fields))
	for _, field := range fields {
		port, err := parsePort(field)
		if err != nil {
			return err
		}
		r.Ports = append(r.Ports, port)
	}
	slices.Sort(r.Ports)
	r.Ports = slices.Compact(r.Ports)
	return nil
}

func parsePort(s string) (uint16, error) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil || port == 0 || s[0] == '0' {
		return 0, fmt.Errorf("port %q is not a number from 1 to 65535; several are joined by +", sbxerr.Clip(s))
	}
	return uint16(port), nil
}

func (r *Rule) parseOptions(options string) error {
	known := map[string]*bool{"private": &r.Private, "opaque": &r.Opaque}
	for option := range strings.SplitSeq(options, ",") {
		set := known[option]
		switch {
		case set == nil:
			return fmt.Errorf("option %q is not known; there are %q", sbxerr.Clip(option), slices.Sorted(maps.Keys(known)))
		case *set:
			return fmt.Errorf("option %q is given twice", option)
		}
		*set = true
	}
	return nil
}

// String renders r so that ParseRule reads it back.
func (r Rule) String() string {
	var b strings.Builder
	if len(r.Methods) > 0 {
		b.WriteString(strings.Join(r.Methods, ",") + " ")
	}
	switch {
	case r.Wildcard:
		b.WriteString("*." + string(r.Name))
	case r.Name != "":
		b.WriteString(string(r.Name))
	default:
		b.WriteString(addresses(r.Prefix))
	}
	for i, port := range r.Ports {
		b.WriteByte(":+"[min(i, 1)])
		b.WriteString(strconv.Itoa(int(port)))
	}
	b.WriteString(r.Path)
	if r.Private {
		b.WriteString(private)
	}
	if r.Opaque {
		b.WriteString(opaque)
	}
	return b.String()
}

// addresses renders a prefix as a rule has it: one address without its bits.
func addresses(p netip.Prefix) string {
	s := p.String()
	if p.IsSingleIP() {
		s = p.Addr().String()
	}
	if p.Addr().Is6() {
		return "[" + s + "]"
	}
	return s
}

// cited is r as decisions name it.
func (r Rule) cited() string { return string(r.Action) + " " + r.String() }

// covers reports whether r is about port.
func (r Rule) covers(port uint16) bool {
	return r.Ports == nil && r.Action == ActDeny || slices.Contains(r.Ports, port)
}
