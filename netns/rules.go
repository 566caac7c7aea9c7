package netns

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/caisson-run/caisson/netns/nflog"
)

// family is an address family: each has rules of its own. It is named as the
// command that programs it.
type family string

const (
	familyV4 family = "iptables"
	familyV6 family = "ip6tables"
)

// rule is one rule of a chain.
type rule struct {
	spec string // as iptables -S prints it, without "-A CHAIN"
	why  string
}

// chain is one chain. The policy of those that are built in is ACCEPT: to change one
// takes nft 11 to 16 ms, and a last rule that drops does the same.
type chain struct {
	name  string
	rules []rule
}

// builtin are the chains of iptables' own.
var builtin = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// table is one table with those of its chains that have rules, or are ours.
type table struct {
	name   string
	chains []chain
}

// dropRest ends a chain.
var dropRest = rule{"-j DROP", "nothing else passes"}

// lines are c as iptables -S prints it.
func (c chain) lines() []string {
	lines := []string{"-N " + c.name}
	if slices.Contains(builtin, c.name) {
		lines[0] = "-P " + c.name + " ACCEPT"
	}
	for _, r := range c.rules {
		lines = append(lines, "-A "+c.name+" "+r.spec)
	}
	return lines
}

// declaredTables are the rules of every namespace with a redirect. They do not
// depend on its prefixes: the routes say which addresses are local, and only
// TCP to these is led. So a change of prefixes programs no rule.
//
// All else goes to lo too, where filter logs and refuses it: by the drop
// routes, or because a socket was bound to lo. That is why the rule asks whether
// the destination is local.
//
// nat comes first: with iptables-nft, reading a rule with a match after the
// first commit waits until the kernel has tidied up (10 ms and more). No route
// leads anywhere until both are in force.
func declaredTables(f family) []table {
	if f == familyV6 {
		return []table{filterTable("::1/128", countedV6.IPNet.String())}
	}
	return []table{
		{"nat", []chain{{"OUTPUT", []rule{{
			"! -d 127.0.0.0/8 -p tcp -m addrtype --dst-type LOCAL -j REDIRECT --to-ports " + strconv.Itoa(GatePort),
			"TCP to an address that a route declares local leads to the gateway",
		}}}}},
		filterTable("127.0.0.0/8"),
	}
}

// filterTable drops all but what goes to the loopback addresses. Connections
// that the table nat leads go there too when the filter sees them.
//
// What it drops is told to the gateway, for the record. A connection is reset, as
// a dropped one would wait for its timeout; other sockets get EPERM at once.
func filterTable(loopback ...string) table {
	var in, out []rule
	for _, addr := range loopback {
		in = append(in, rule{"-d " + addr + " -i lo -j ACCEPT", "programs inside talk to each other, and to the gateway"})
		out = append(out, rule{"-d " + addr + " -o lo -j ACCEPT", "programs inside talk to each other, and to the gateway"})
	}
	return table{"filter", []chain{
		{"INPUT", append(in, dropRest)},
		{"FORWARD", []rule{dropRest}},
		{"OUTPUT", append(out,
			rule{logged(nflog.Refused), "the gateway hears of what goes nowhere, and records it"},
			rule{"-p tcp -j REJECT --reject-with tcp-reset", "a connection that goes nowhere fails at once"},
			dropRest,
		)},
	}}
}

// logged is the rule that logs to a group what a program of the sandbox sends. What the
// kernel says by itself, such as resets and reports of multicast, is no attempt: it has no
// socket of anybody's. The gateway's answers are not either: its sockets are root's, whom
// no sandbox has (iptables-extensions(8), owner).
func logged(group nflog.Group) string {
	return fmt.Sprintf("-m owner --uid-owner 1-%d -j NFLOG --nflog-group %d", uint32(math.MaxUint32-1), group)
}
