package netns

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

var wantLines = map[family][]string{
	familyV4: {
		"nat -P OUTPUT ACCEPT",
		"nat -A OUTPUT ! -d 127.0.0.0/8 -p tcp -m addrtype --dst-type LOCAL -j REDIRECT --to-ports 1",
		"filter -P INPUT ACCEPT",
		"filter -A INPUT -d 127.0.0.0/8 -i lo -j ACCEPT",
		"filter -A INPUT -j DROP",
		"filter -P FORWARD ACCEPT",
		"filter -A FORWARD -j DROP",
		"filter -P OUTPUT ACCEPT",
		"filter -A OUTPUT -d 127.0.0.0/8 -o lo -j ACCEPT",
		"filter -A OUTPUT -m owner --uid-owner 1-4294967294 -j NFLOG --nflog-group 1",
		"filter -A OUTPUT -p tcp -j REJECT --reject-with tcp-reset",
		"filter -A OUTPUT -j DROP",
	},
	familyV6: {
		"filter -P INPUT ACCEPT",
		"filter -A INPUT -d ::1/128 -i lo -j ACCEPT",
		"filter -A INPUT -d fe80::2/128 -i lo -j ACCEPT",
		"filter -A INPUT -j DROP",
		"filter -P FORWARD ACCEPT",
		"filter -A FORWARD -j DROP",
		"filter -P OUTPUT ACCEPT",
		"filter -A OUTPUT -d ::1/128 -o lo -j ACCEPT",
		"filter -A OUTPUT -d fe80::2/128 -o lo -j ACCEPT",
		"filter -A OUTPUT -m owner --uid-owner 1-4294967294 -j NFLOG --nflog-group 1",
		"filter -A OUTPUT -p tcp -j REJECT --reject-with tcp-reset",
		"filter -A OUTPUT -j DROP",
	},
}

func TestDeclaredRules(t *testing.T) {
	for f, want := range wantLines {
		var got []string
		for _, table := range declaredTables(f) {
			for _, c := range table.chains {
				for _, line := range c.lines() {
					got = append(got, table.name+" "+line)
				}
				for _, r := range c.rules {
					if r.why == "" {
						t.Errorf("rule %q has no reason", r.spec)
					}
				}
				if last := c.rules[len(c.rules)-1]; table.name == "filter" && last != dropRest {
					t.Errorf("%s: %s ends with %q", f, c.name, last.spec)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", f, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// present are the tables of want.
func present(want []table) (names []string) {
	for _, t := range want {
		names = append(names, t.name)
	}
	return names
}

func TestJoinDestinations(t *testing.T) {
	var rules []rule
	for _, spec := range []string{"-j A", "-d 1.0.0.0/8 -j A", "-d 2.0.0.0/8 -j A", "-d 3.0.0.0/8 -j B", "-d 4.0.0.0/8 -o lo -j B", "-d 5.0.0.0/8 -j B", "-d 6.0.0.0/8 -j B --with c", "-d 7.0.0.0/8 -j B --with c", "-j B"} {
		rules = append(rules, rule{spec: spec})
	}
	want := []string{"-j A", "-d 1.0.0.0/8,2.0.0.0/8 -j A", "-d 3.0.0.0/8 -j B", "-d 4.0.0.0/8 -o lo -j B", "-d 5.0.0.0/8 -j B", "-d 6.0.0.0/8,7.0.0.0/8 -j B --with c", "-j B"}
	if got := joinDestinations(rules); !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

func TestProgramAndCompare(t *testing.T) {
	for f := range wantLines {
		want := declaredTables(f)
		for _, fresh := range []bool{true, false} {
			m := newMemory()
			if !fresh {
				m.add(t, "filter OUTPUT -j ACCEPT")
			}
			if err := program(m, want, fresh); err != nil {
				t.Fatal(err)
			}
			calls := m.calls
			if diffs, err := compareTables(m, f, want, present(want)); err != nil || len(diffs) > 0 {
				t.Errorf("%s, fresh %t: %v, %v", f, fresh, diffs, err)
			}
			for n := 1; n <= calls; n++ {
				m := newMemory()
				m.failAt = n
				if err := program(m, want, fresh); !errors.Is(err, errInjected) {
					t.Errorf("%s, call %d fails: %v", f, n, err)
				}
			}
		}
	}
}

// Each rule that is lost, or turned into another, is a difference; and so is what is more.
func TestCompareFindsEveryRule(t *testing.T) {
	for f := range wantLines {
		want := declaredTables(f)
		differs := func(what string, change func(*memoryTables)) {
			t.Helper()
			m := newMemory()
			if err := program(m, want, true); err != nil {
				t.Fatal(err)
			}
			change(m)
			if diffs, err := compareTables(m, f, want, present(want)); err != nil || len(diffs) != 1 {
				t.Errorf("%s, %s: %v, %v; want one difference", f, what, diffs, err)
			}
		}
		for _, table := range want {
			for _, c := range table.chains {
				for i, r := range c.rules {
					differs("without "+r.spec, func(m *memoryTables) { at := m.chain(table.name, c.name); at.rules = slices.Delete(at.rules, i, i+1) })
					differs("another for "+r.spec, func(m *memoryTables) { m.chain(table.name, c.name).rules[i].spec += " x" })
				}
			}
		}
		differs("a rule before", func(m *memoryTables) { m.add(t, "filter OUTPUT -j ACCEPT") })
		differs("a chain", func(m *memoryTables) { _ = m.ClearChain("filter", "MINE") })
		m := newMemory()
		if err := program(m, want, true); err != nil {
			t.Fatal(err)
		}
		if diffs, err := compareTables(m, f, want, append(present(want), "mangle")); err != nil || len(diffs) > 0 {
			t.Errorf("%s, a table that does nothing: %v, %v", f, diffs, err)
		}
		m.add(t, "mangle OUTPUT -j MARK")
		if diffs, err := compareTables(m, f, want, append(present(want), "mangle")); err != nil || len(diffs) != 1 {
			t.Errorf("%s, a rule elsewhere: %v, %v", f, diffs, err)
		}
		if diffs, err := compareTables(m, f, want, nil); err != nil || len(diffs) != len(want) {
			t.Errorf("%s, no tables: %v, %v", f, diffs, err)
		}
	}
}

func TestBackendOfTheTablesInUse(t *testing.T) {
	for name, tc := range map[string]struct {
		use     tablesInUse
		want    backend
		foreign int // for a command that is for nft
	}{
		"none":        {tablesInUse{}, backendAny, 0},
		"nft":         {tablesInUse{nft: []string{"ip filter", "ip nat", "ip6 filter"}}, backendNFT, 0},
		"legacy":      {tablesInUse{legacy: map[family]string{familyV4: "nat filter"}}, backendLegacy, 1},
		"both":        {tablesInUse{nft: []string{"ip nat"}, legacy: map[family]string{familyV4: "nat"}}, backendAny, 1},
		"of others":   {tablesInUse{nft: []string{"inet filter", "ip mine", "bridge nat"}}, backendAny, 3},
		"IPv6 legacy": {tablesInUse{nft: []string{"ip filter"}, legacy: map[family]string{familyV6: "filter"}}, backendNFT, 1},
	} {
		if got := tc.use.backend(familyV4); got != tc.want {
			t.Errorf("%s: backend %q; want %q", name, got, tc.want)
		}
		nft := map[family]backend{familyV4: backendNFT, familyV6: backendNFT}
		if got := tc.use.foreign(nft); len(got) != tc.foreign {
			t.Errorf("%s: foreign %v; want %d", name, got, tc.foreign)
		}
	}
}
