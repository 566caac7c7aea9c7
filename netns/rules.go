package netns

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

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
	spec string // as iptables-save prints it, without "-A CHAIN"
	why  string
}

// chain is one chain. Its policy is what happens to packets that no rule takes;
// it is "-" for a chain that is not built in.
type chain struct {
	name   string
	policy string
	rules  []rule
}

// table is one table with all of its chains.
type table struct {
	name   string
	chains []chain
}

// declaredTables are the rules of every namespace with a gate. They do not
// depend on its prefixes: the routes say which addresses are local, and only
// TCP to these is led. So a change of prefixes programs no rule.
//
// All else goes to lo too, where filter logs and refuses it: by the routes of
// strays, or because a socket was bound to lo. That is why the rule asks whether
// the destination is local.
//
// nat comes first: with iptables-nft, reading a rule with a match after the
// first commit waits until the kernel has tidied up (10 ms and more). No route
// leads anywhere until both are in force.
func declaredTables(f family) []table {
	if f == familyV6 {
		return []table{filterTable("::1/128")}
	}
	return []table{
		{"nat", []chain{
			{"PREROUTING", "ACCEPT", nil},
			{"INPUT", "ACCEPT", nil},
			{"OUTPUT", "ACCEPT", []rule{{
				"! -d 127.0.0.0/8 -p tcp -m addrtype --dst-type LOCAL -j REDIRECT --to-ports " + strconv.Itoa(GatePort),
				"TCP to an address that a route declares local leads to the gateway",
			}}},
			{"POSTROUTING", "ACCEPT", nil},
		}},
		filterTable("127.0.0.0/8"),
	}
}

// filterTable drops all but what goes to the loopback addresses. Connections
// that the table nat leads go there too when the filter sees them.
//
// What it drops is told to the gateway, for the record. A connection is reset, as
// a dropped one would wait for its timeout; other sockets get EPERM at once.
func filterTable(loopback string) table {
	return table{"filter", []chain{
		{"INPUT", "DROP", []rule{{"-d " + loopback + " -i lo -j ACCEPT", "programs inside talk to each other, and to the gateway"}}},
		{"FORWARD", "DROP", nil},
		{"OUTPUT", "DROP", []rule{
			{"-d " + loopback + " -o lo -j ACCEPT", "programs inside talk to each other, and to the gateway"},
			{logged(nflog.Refused), "the gateway hears of what goes nowhere, and records it"},
			{"-p tcp -j REJECT --reject-with tcp-reset", "a connection that goes nowhere fails at once"},
		}},
	}}
}

// logged is the rule that logs to a group what a program of the sandbox sends. What the
// kernel says by itself, such as resets and reports of multicast, is no attempt: it has no
// socket of anybody's. The gateway's answers are not either: its sockets are root's, whom
// no sandbox has (iptables-extensions(8), owner).
func logged(group nflog.Group) string {
	return fmt.Sprintf("-m owner --uid-owner 1-%d -j NFLOG --nflog-group %d", uint32(math.MaxUint32-1), group)
}

// render writes tables as iptables-restore reads them. Each is replaced as a
// whole, at once.
func render(tables []table) string {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "*%s\n", t.name)
		for _, c := range t.chains {
			fmt.Fprintf(&b, ":%s %s [0:0]\n", c.name, c.policy)
		}
		for _, c := range t.chains {
			for _, r := range c.rules {
				fmt.Fprintf(&b, "-A %s %s\n", c.name, r.spec)
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// parseSaved reads what iptables-save printed. A line that it does not know is
// an error: nobody can say what it means.
func parseSaved(text string) ([]table, error) {
	var tables []table
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line == "COMMIT" || line[0] == '#':
			continue
		case line[0] == '*':
			tables = append(tables, table{name: line[1:]})
			continue
		}
		if len(tables) == 0 || !tables[len(tables)-1].take(line) {
			return nil, fmt.Errorf("read the live rules: line %.200q is not known", line)
		}
	}
	return tables, nil
}

// take adds the chain or rule that line is to t.
func (t *table) take(line string) bool {
	if declaration, ok := strings.CutPrefix(line, ":"); ok {
		fields := strings.Fields(declaration)
		if len(fields) < 2 {
			return false
		}
		t.chains = append(t.chains, chain{name: fields[0], policy: fields[1]})
		return true
	}
	appended, ok := strings.CutPrefix(line, "-A ")
	if !ok {
		return false
	}
	name, spec, _ := strings.Cut(appended, " ")
	i := slices.IndexFunc(t.chains, func(c chain) bool { return c.name == name })
	if i < 0 {
		return false
	}
	t.chains[i].rules = append(t.chains[i].rules, rule{spec: spec})
	return true
}

// compareTables returns how live differs from want. A table that is not
// wanted may be there if it does nothing: listing its rules makes one.
func compareTables(f family, want, live []table) []Difference {
	var found []Difference
	for _, l := range live {
		if i := slices.IndexFunc(want, func(t table) bool { return t.name == l.name }); i >= 0 {
			found = append(found, compareChains(f, l.name, want[i].chains, l.chains)...)
			continue
		}
		for _, c := range l.chains {
			if c.policy != "ACCEPT" || len(c.rules) > 0 {
				found = append(found, Difference{Name: string(f) + " chain", Declared: "absent", Live: l.name + " " + c.name})
			}
		}
	}
	for _, t := range want {
		if !slices.ContainsFunc(live, func(l table) bool { return l.name == t.name }) {
			found = append(found, Difference{Name: string(f) + " table", Declared: t.name, Live: "absent"})
		}
	}
	return found
}

func compareChains(f family, table string, want, live []chain) []Difference {
	var found []Difference
	for _, c := range live {
		if !slices.ContainsFunc(want, func(w chain) bool { return w.name == c.name }) {
			found = append(found, Difference{Name: string(f) + " chain", Declared: "absent", Live: table + " " + c.name})
		}
	}
	for _, w := range want {
		where := table + " " + w.name
		i := slices.IndexFunc(live, func(c chain) bool { return c.name == w.name })
		if i < 0 {
			found = append(found, Difference{Name: string(f) + " chain", Declared: where, Live: "absent"})
			continue
		}
		if live[i].policy != w.policy {
			found = append(found, Difference{Name: string(f) + " policy of " + where, Declared: w.policy, Live: live[i].policy})
		}
		if wanted, is := specs(w.rules), specs(live[i].rules); wanted != is {
			found = append(found, Difference{Name: string(f) + " rules of " + where, Declared: wanted, Live: is})
		}
	}
	return found
}

// specs renders rules in their order, "none" if there are none.
func specs(rules []rule) string {
	if len(rules) == 0 {
		return "none"
	}
	var all []string
	for _, r := range rules {
		all = append(all, r.spec)
	}
	return strings.Join(all, "; ")
}
