package netns

import (
	"fmt"
	"slices"
	"strings"
)

// compareHooks returns how the live tables differ from what is wanted in them.
// What else is in these tables is the host's own business.
func compareHooks(f family, want []hook, live []table) []Difference {
	var found []Difference
	for _, h := range want {
		l := tableNamed(live, h.table)
		for _, j := range h.jumps {
			if l.count(j) == 0 {
				found = append(found, Difference{Name: string(f) + " rule of " + h.table + " " + j.from, Declared: j.spec(), Live: "absent"})
			}
		}
		found = append(found, compareChains(f, h.table, h.chains, l.named(h.chains))...)
	}
	return found
}

// mend is what iptables-restore --noflush is given to make the live tables what is
// wanted: our chains are made anew, and jumps to them added where there are none.
// All other rules stay. Each table is changed as a whole, at once.
func mend(want []hook, live []table) string {
	var b strings.Builder
	for _, h := range want {
		l := tableNamed(live, h.table)
		fmt.Fprintf(&b, "*%s\n", h.table)
		for _, c := range h.chains {
			fmt.Fprintf(&b, ":%s - [0:0]\n", c.name)
		}
		for _, c := range h.chains {
			for _, r := range c.rules {
				fmt.Fprintf(&b, "-A %s %s\n", c.name, r.spec)
			}
		}
		for _, j := range h.jumps {
			if l.count(j) == 0 {
				b.WriteString(j.add())
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// clean is what iptables-restore --noflush is given to take away all that is of
// ours in the live tables: chains whose names begin with prefix, and what jumps to
// them. It is empty where there is nothing.
func clean(prefix string, live []table) string {
	var b strings.Builder
	for _, l := range live {
		var lines, ours []string
		for _, c := range l.chains {
			if strings.HasPrefix(c.name, prefix) {
				ours = append(ours, c.name)
				continue
			}
			for _, r := range c.rules {
				if strings.HasPrefix(r.spec, "-j "+prefix) {
					lines = append(lines, "-D "+c.name+" "+r.spec)
				}
			}
		}
		for _, verb := range []string{"-F ", "-X "} {
			for _, name := range ours {
				lines = append(lines, verb+name)
			}
		}
		if len(lines) > 0 {
			fmt.Fprintf(&b, "*%s\n%s\nCOMMIT\n", l.name, strings.Join(lines, "\n"))
		}
	}
	return b.String()
}

func (j jump) spec() string { return "-j " + j.to }

func (j jump) add() string {
	if j.last {
		return fmt.Sprintf("-A %s %s\n", j.from, j.spec())
	}
	return fmt.Sprintf("-I %s 1 %s\n", j.from, j.spec())
}

// tableNamed returns an empty table where there is none of that name.
func tableNamed(tables []table, name string) table {
	i := slices.IndexFunc(tables, func(t table) bool { return t.name == name })
	if i < 0 {
		return table{name: name}
	}
	return tables[i]
}

// count is how often t jumps so.
func (t table) count(j jump) int {
	n := 0
	for _, c := range t.chains {
		for _, r := range c.rules {
			if c.name == j.from && r.spec == j.spec() {
				n++
			}
		}
	}
	return n
}

// named returns the chains of t that have the name of one of want.
func (t table) named(want []chain) []chain {
	var found []chain
	for _, c := range t.chains {
		if slices.ContainsFunc(want, func(w chain) bool { return w.name == c.name }) {
			found = append(found, c)
		}
	}
	return found
}
