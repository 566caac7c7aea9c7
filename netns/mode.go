package netns

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Mode says how far a sandbox's network reaches.
type Mode string

// The modes.
const (
	ModeNone   Mode = "none"   // nothing: only lo
	ModeAllow  Mode = "allow"  // named destinations through the gateway
	ModeOpen   Mode = "open"   // every public name through the gateway
	ModeBridge Mode = "bridge" // a real interface
)

// ModeInfo is what is known of one mode.
type ModeInfo struct {
	Mode    Mode
	Summary string
}

var modes = []ModeInfo{
	{ModeNone, "only the loopback device: every connection fails at once"},
	{ModeAllow, "only destinations that the policy names, through the gateway"},
	{ModeOpen, "every public name over TCP, through the gateway"},
	{ModeBridge, "every public address with any protocol, through a link of its own that the host masks"},
}

// Modes lists all modes, the strictest first.
func Modes() []ModeInfo { return slices.Clone(modes) }

// ParseMode reads a mode. Empty is none, the strictest. One that is not known is
// refused with code sbxerr.NetworkMode. Whether the operator offers bridge is for
// BridgeConfig to say.
func ParseMode(s string) (Mode, error) {
	const op = "netns.parse_mode"
	if s == "" {
		return ModeNone, nil
	}
	i := slices.IndexFunc(modes, func(m ModeInfo) bool { return string(m.Mode) == s })
	if i < 0 {
		return "", sbxerr.New(sbxerr.NetworkMode, op, "use network mode %q: %s", sbxerr.Clip(s), suggest(s))
	}
	return modes[i].Mode, nil
}

// Describe lists, as a person reads them, the facts that enforce m. Those of the
// mode bridge, which depend on the configuration, are BridgeConfig's to describe.
func (m Mode) Describe() []string {
	var lines []string
	switch m {
	case ModeNone:
		lines = []string{
			"link lo, up: the only one, with " + strings.Join(loAddresses, ", "),
			"no route but to these addresses, in any table",
			"owned by the host's user namespace: root inside cannot change it",
			"no rules: there is no way out that a rule would have to close",
		}
	case ModeAllow, ModeOpen:
		lines = []string{
			"link lo, up: the only one, with " + strings.Join(loAddresses, ", "),
			"no route but to these addresses, local ones for what leads to the gateway (the names' pool, and addresses that the policy names), and to lo for the rest, to be logged and refused",
			"owned by the host's user namespace: root inside cannot change it",
			fmt.Sprintf("the gateway listens on %s, TCP port %d, and serves DNS on port %d; nothing inside may take these ports", gateAddress, GatePort, DNSPort),
		}
		for _, f := range []family{familyV4, familyV6} {
			lines = append(lines, describeRules(f, declaredTables(f))...)
		}
		lines = append(lines, describeSysctls(gateSysctls)...)
	default:
		return nil
	}
	return append(lines, describeSysctls(sysctls)...)
}

func describeSysctls(list []Sysctl) []string {
	var lines []string
	for _, s := range list {
		lines = append(lines, fmt.Sprintf("sysctl %s = %s: %s", s.Key, s.Value, s.Why))
	}
	return lines
}

// describeRules lists the rules with their reasons.
func describeRules(f family, tables []table) []string {
	var lines []string
	for _, t := range tables {
		for _, c := range t.chains {
			for _, r := range c.rules {
				lines = append(lines, fmt.Sprintf("%s -t %s -A %s %s: %s", f, t.name, c.name, r.spec, r.why))
			}
		}
	}
	return lines
}

// suggest names the nearest mode if one is near enough to be a slip of the hand,
// else all.
func suggest(s string) string {
	var names []string
	for _, m := range modes {
		names = append(names, string(m.Mode))
	}
	if near := sbxerr.Nearest(strings.ToLower(sbxerr.Clip(s)), names); near != "" {
		return fmt.Sprintf("there is no such mode; did you mean %q?", near)
	}
	return fmt.Sprintf("there is no such mode; there are %q", names)
}
