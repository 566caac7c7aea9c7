package netns

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var errInjected = errors.New("injected")

// memoryTables are tables in memory. The call number failAt fails; 0 is none.
type memoryTables struct {
	calls, failAt int
	tables        map[string][]*chain
}

var builtinOf = map[string][]string{
	"filter": {"INPUT", "FORWARD", "OUTPUT"}, "nat": {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"}, "mangle": builtin, "raw": {"PREROUTING", "OUTPUT"},
}

func newMemory() *memoryTables {
	m := &memoryTables{tables: map[string][]*chain{}}
	for table, names := range builtinOf {
		for _, name := range names {
			m.tables[table] = append(m.tables[table], &chain{name: name})
		}
	}
	return m
}

// add puts the rule "TABLE CHAIN RULE" first.
func (m *memoryTables) add(t *testing.T, line string) {
	t.Helper()
	fields := strings.SplitN(line, " ", 3)
	if m.chain(fields[0], fields[1]) == nil {
		m.tables[fields[0]] = append(m.tables[fields[0]], &chain{name: fields[1]})
	}
	if err := m.InsertUnique(fields[0], fields[1], 1, fields[2]); err != nil {
		t.Fatal(err)
	}
	m.calls--
}

// String is all that there is.
func (m *memoryTables) String() string {
	var lines []string
	for table, chains := range m.tables {
		for _, c := range chains {
			for _, line := range c.lines() {
				lines = append(lines, table+" "+line)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (m *memoryTables) chain(table, name string) *chain {
	i := slices.IndexFunc(m.tables[table], func(c *chain) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return m.tables[table][i]
}

// call returns a chain that must be there.
func (m *memoryTables) call(table, name string) (*chain, error) {
	m.calls++
	if m.calls == m.failAt {
		return nil, errInjected
	}
	c := m.chain(table, name)
	if c == nil {
		return nil, fmt.Errorf("there is no chain %q of %q", name, table)
	}
	return c, nil
}

func (m *memoryTables) insert(table, name string, at int, unique bool, args []string) error {
	c, err := m.call(table, name)
	if err != nil || unique && slices.Contains(c.rules, rule{spec: strings.Join(args, " ")}) {
		return err
	}
	if at < 0 {
		at = len(c.rules)
	}
	destinations := slices.Index(args, "-d") + 1
	for i, to := range strings.Split(args[destinations], ",") { // without one, it is the first word
		args[destinations] = to
		c.rules = slices.Insert(c.rules, at+i, rule{spec: strings.Join(args, " ")})
	}
	return nil
}

func (m *memoryTables) Append(table, name string, args ...string) error {
	return m.insert(table, name, -1, false, args)
}

func (m *memoryTables) AppendUnique(table, name string, args ...string) error {
	return m.insert(table, name, -1, true, args)
}

func (m *memoryTables) InsertUnique(table, name string, position int, args ...string) error {
	return m.insert(table, name, position-1, true, args)
}

func (m *memoryTables) Delete(table, name string, args ...string) error {
	c, err := m.call(table, name)
	if err != nil {
		return err
	}
	i := slices.Index(c.rules, rule{spec: strings.Join(args, " ")})
	if i < 0 {
		return fmt.Errorf("there is no rule %q", args)
	}
	c.rules = slices.Delete(c.rules, i, i+1)
	return nil
}

func (m *memoryTables) ClearChain(table, name string) error {
	if m.chain(table, name) == nil {
		m.tables[table] = append(m.tables[table], &chain{name: name})
	}
	c, err := m.call(table, name)
	if err == nil {
		c.rules = nil
	}
	return err
}

func (m *memoryTables) DeleteChain(table, name string) error {
	c, err := m.call(table, name)
	if err == nil && len(c.rules) > 0 {
		err = fmt.Errorf("chain %q is not empty", name)
	}
	if err == nil {
		m.tables[table] = slices.DeleteFunc(m.tables[table], func(c *chain) bool { return c.name == name })
	}
	return err
}

func (m *memoryTables) List(table, name string) ([]string, error) {
	c, err := m.call(table, name)
	if err != nil {
		return nil, err
	}
	return c.lines(), nil
}

func (m *memoryTables) ListChains(table string) (names []string, err error) {
	for _, c := range m.tables[table] {
		names = append(names, c.name)
	}
	_, err = m.call(table, names[0])
	return names, err
}
