package netns

import (
	"fmt"
	"slices"

	"github.com/caisson-run/caisson/netns/nflog"
	"github.com/caisson-run/caisson/netns/reserved"
)

// maxFlows is how many connections, or exchanges of datagrams, one sandbox may have
// at the same time. Exchanges count until they are forgotten, connections until they are
// closed (net.netfilter.nf_conntrack_*_timeout*; iptables-extensions(8), connlimit).
const maxFlows = 4096

// hook is a table of the host with chains of ours in it.
type hook struct {
	table // with chains that are ours alone
	jumps []jump
}

// jump leads from a built-in chain to one of ours.
type jump struct {
	from, to string
	last     bool // after the rules that are there, which then bind sandboxes too; else before them
}

// hostTables are the rules in the host's namespace. They are the same for every
// sandbox: its link and its route are all that it has of its own.
//
// They are made to fail closed whoever flushes which of the tables. A packet from
// a sandbox is taken only if there is a route back to its source (rp_filter), and
// that route is found only by packets with both marks (see tether). One is given
// by the same chain that refuses destinations, the other by the table that masks
// the source. So without the refusals, or without the masking, nothing is routed
// at all. What the table filter says comes on top of it.
func (c BridgeConfig) hostTables(f family) []hook {
	in := "-i " + c.linkPrefix() + "+"
	out := "-o " + c.linkPrefix() + "+"
	if f == familyV6 {
		return []hook{{jumps: []jump{{"INPUT", c.chain("IN"), false}, {"FORWARD", c.chain("FWD"), false}}, table: table{"filter", []chain{
			{c.chain("IN"), []rule{{in + " -j DROP", "links of sandboxes have no IPv6"}}},
			{c.chain("FWD"), []rule{{in + " -j DROP", "links of sandboxes have no IPv6"}, {out + " -j DROP", "links of sandboxes have no IPv6"}}},
		}}}}
	}
	return []hook{c.mangleHook(in), c.natHook(in), c.filterHook(in, out)}
}

// chain is the name of one of our chains, at most 28 characters.
func (c BridgeConfig) chain(name string) string { return "CAISSON-" + c.tag() + "-" + name }

func (c BridgeConfig) mangleHook(in string) hook {
	rules := []rule{
		{
			fmt.Sprintf("! %s -m conntrack --ctstate RELATED,ESTABLISHED --ctorigsrc %s --ctdir REPLY -j %s", in, c.Subnet, setMark(marksOfWorld)),
			"answers find their sandbox",
		},
		{"! " + in + " -j RETURN", "what else comes from elsewhere is not for sandboxes"},
		{
			fmt.Sprintf("-m conntrack --ctstate NEW -m connlimit --connlimit-above %d --connlimit-mask 32 --connlimit-saddr -j DROP", maxFlows),
			"the host's table of connections is not one sandbox's to fill",
		},
	}
	rules = append(rules, c.resolverRules("", "-g "+c.chain("PASS"))...)
	rules = append(rules, rule{"-m addrtype ! --dst-type UNICAST -j DROP", "the host itself, whatever its addresses are; broadcast and multicast"})
	rules = append(append(rules, reservedRules("DROP")...), rule{"-g " + c.chain("PASS"), "all else is public"})
	return hook{jumps: []jump{{"PREROUTING", c.chain("PRE"), false}}, table: table{"mangle", []chain{
		{c.chain("PASS"), []rule{
			{fmt.Sprintf("-m connmark --mark %#x/%#x -j %s", markMasked, markMasked, setMark(markMasked)), "later packets of a connection that is masked"},
			{"-j " + setMark(markPassed), "it is not refused"},
		}},
		{c.chain("PRE"), rules},
	}}}
}

// natHook sees only the first packet of a connection.
func (c BridgeConfig) natHook(in string) hook {
	return hook{jumps: []jump{{"PREROUTING", c.chain("PRE"), false}, {"POSTROUTING", c.chain("POST"), false}}, table: table{"nat", []chain{
		{c.chain("POST"), []rule{{fmt.Sprintf("-s %s ! -o %s+ -j MASQUERADE", c.Subnet, c.linkPrefix()), "sandboxes have the host's address outside"}}},
		{c.chain("PRE"), []rule{
			{in + " -j CONN" + setMark(markMasked), "the connection is masked: its later packets do not come here"},
			{in + " -j " + setMark(markMasked), "this packet is masked"},
		}},
	}}}
}

func (c BridgeConfig) filterHook(in, out string) hook {
	marked := fmt.Sprintf(" -m mark --mark %#x/%#x -j ACCEPT", marksOfWorld, marksOfWorld)
	return hook{jumps: []jump{{"INPUT", c.chain("IN"), false}, {"FORWARD", c.chain("FWD"), true}}, table: table{"filter", []chain{
		{c.chain("FWD"), []rule{
			{in + " " + out + " -j DROP", "sandboxes do not reach each other"},
			{in + marked, "also where the host forwards nothing else"},
			{out + marked, "answers to it"},
			{in + " -j DROP", "what is not marked"},
			{out + " -j DROP", "what nobody inside asked for"},
		}},
		{c.chain("IN"), []rule{{in + " -j DROP", "the host is not reached"}}},
	}}}
}

func setMark(bits int) string { return fmt.Sprintf("MARK --set-xmark %#x/%#x", bits, bits) }

// The chains of our own in the namespace of a sandbox of the mode bridge.
const (
	chainPass   = "PASS"
	chainRefuse = "REFUSE"
	chainLimit  = "LIMIT"
	chainAnswer = "ANSWER"
)

const hearsOfRefused = "the gateway hears of what is refused, and records it"

// innerTables are the rules in the namespace of a sandbox of the mode bridge.
// Nothing of the host's flushes these, and nothing inside can. Refusals are said
// at once here; the host's own would keep a program waiting.
//
// The gateway is told of refused packets: nflog counts those that nobody reads, and holds
// up nothing.
func (c BridgeConfig) innerTables(f family, w wire) []table {
	const self = "programs inside talk to each other"
	if f == familyV6 {
		return []table{{"filter", []chain{
			{"INPUT", []rule{{"-d ::1/128 -i lo -j ACCEPT", self}, dropRest}},
			{"FORWARD", []rule{dropRest}},
			{"OUTPUT", []rule{{"-d ::1/128 -o lo -j ACCEPT", self}, {"-j " + chainRefuse, "there is no IPv6 in this mode"}, dropRest}},
			{chainRefuse, []rule{{logged(nflog.Refused), hearsOfRefused}, {"-p tcp -j REJECT --reject-with tcp-reset", "a connection fails at once"}, {"-j DROP", "all else fails at once"}}},
		}}}
	}
	const own = "connections inside are not tracked: no cgroup counts the memory for that"
	return []table{{"raw", []chain{
		{"PREROUTING", []rule{{"-i lo -j CT --notrack", own}}},
		{"OUTPUT", []rule{{"-o lo -j CT --notrack", own}}},
	}}, {"filter", []chain{
		{"INPUT", []rule{
			{"-d 127.0.0.0/8 -i lo -j ACCEPT", self},
			{fmt.Sprintf("-d %s/32 -i lo -j ACCEPT", w.address), self},
			{"-i " + innerLink + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "answers, and nothing that was not asked for"},
			dropRest,
		}},
		{"FORWARD", []rule{dropRest}},
		{"OUTPUT", slices.Concat([]rule{
			{"-d 127.0.0.0/8 -o lo -j ACCEPT", self},
			{fmt.Sprintf("-d %s/32 -o lo -j ACCEPT", w.address), self},
			{fmt.Sprintf("! -s %s/32 -j %s", w.address, chainRefuse), "no packet has another's address"},
		}, c.judge())},
		{chainPass, []rule{
			{fmt.Sprintf("-m conntrack --ctstate NEW -m connlimit --connlimit-above %d --connlimit-mask 32 --connlimit-saddr -j %s", maxFlows, chainLimit), "the host would drop it, and its sender wait"},
			{"-j ACCEPT", "it leaves"},
		}},
		{chainRefuse, []rule{{logged(nflog.Refused), hearsOfRefused}, {"-j " + chainAnswer, "its sender is told"}}},
		{chainLimit, []rule{{logged(nflog.Limited), "the gateway hears that it was too many, and records it"}, {"-j " + chainAnswer, "its sender is told"}}},
		{chainAnswer, []rule{
			{fmt.Sprintf("! -s %s/32 -j DROP", w.address), "no packet answers another's address"},
			{"-p tcp -j REJECT --reject-with tcp-reset", "a connection fails at once: what ICMP says of it is not heeded while it is begun"},
			{"-j REJECT --reject-with icmp-admin-prohibited", "all else fails at once"},
		}},
	}}}
}

// judge are the rules that say what leaves.
func (c BridgeConfig) judge() []rule {
	return slices.Concat(c.resolverRules(" -o "+innerLink, "-j "+chainPass), reservedRules(chainRefuse), []rule{
		{"-o " + innerLink + " -j " + chainPass, "all else is public; the host refuses its own addresses"},
		{"-j " + chainRefuse, "there is no other way out"}, dropRest,
	})
}

// resolverRules lead questions to the configured resolvers to a target.
func (c BridgeConfig) resolverRules(by, target string) (rules []rule) {
	for _, r := range c.Resolvers {
		for _, proto := range []string{"udp", "tcp"} {
			rules = append(rules, rule{fmt.Sprintf("-d %s/32%s -p %s -m %s --dport 53 %s", r, by, proto, proto, target), "a resolver of the configuration"})
		}
	}
	return rules
}

// reservedRules lead packets to reserved ranges to a target.
func reservedRules(target string) (rules []rule) {
	for _, r := range reserved.Ranges {
		rules = append(rules, rule{"-d " + r.Prefix.String() + " -j " + target, r.Why})
	}
	return rules
}

// Describe lists, as a person reads them, the facts that enforce the mode bridge
// in a sandbox that has number.
func (c BridgeConfig) Describe(number uint32) []string {
	w, err := c.wire(number)
	if err != nil {
		return nil
	}
	lines := []string{
		"links lo and " + innerLink + ", up: no others, with 127.0.0.1/8, 127.0.0.2/8, ::1/128 and " + w.address.String() + "/32",
		"the other end of " + innerLink + " is " + w.outer + " on the host: a link of two ends, with nobody else on it",
		"one route, which leads through " + innerLink + ", and for IPv6 one to lo, to be logged and refused",
		"owned by the host's user namespace: root inside cannot change it",
	}
	for _, f := range []family{familyV4, familyV6} {
		lines = append(lines, describeRules(f, c.innerTables(f, w))...)
		for _, h := range c.hostTables(f) {
			lines = append(lines, describeHook(f, h)...)
		}
	}
	return append(lines, append(describeSysctls(innerSysctls()), describeSysctls(outerSysctls(w))...)...)
}

func describeHook(f family, h hook) []string {
	lines := describeRules(f, []table{h.table})
	for _, j := range h.jumps {
		lines = append(lines, fmt.Sprintf("%s -t %s %s", f, h.name, j))
	}
	for i := range lines {
		lines[i] = "on the host: " + lines[i]
	}
	return lines
}
