package netns

import (
	"fmt"
	"slices"
	"strings"
)

// compareHook returns how the live table differs from what is wanted in it. What else is
// there is the host's own business.
func compareHook(ipt ruleTables, f family, want hook) (found []Difference, err error) {
	present, err := ipt.ListChains(want.name)
	if err != nil {
		return nil, err
	}
	if found, err = compareDeclared(ipt, f, want.table, present); err != nil {
		return nil, err
	}
	for _, j := range want.jumps {
		live, err := ipt.List(want.name, j.from)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(live, "-A "+j.from+" "+j.spec()) {
			found = append(found, Difference{Name: string(f) + " rule of " + want.name + " " + j.from, Declared: j.spec(), Live: "absent"})
		}
	}
	return found, nil
}

// mend makes our chains in the live table anew, and adds the jumps to them that are not
// there. All other rules stay.
func mend(ipt ruleTables, want hook) error {
	if err := program(ipt, []table{want.table}, false); err != nil {
		return err
	}
	for _, j := range want.jumps {
		var err error
		if j.last {
			err = ipt.AppendUnique(want.name, j.from, "-j", j.to)
		} else {
			err = ipt.InsertUnique(want.name, j.from, 1, "-j", j.to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clean takes the chains with names that begin with prefix from the table, and the jumps
// to them.
func clean(ipt ruleTables, table, prefix string) error {
	chains, err := ipt.ListChains(table)
	if err != nil {
		return err
	}
	ours := slices.DeleteFunc(slices.Clone(chains), func(name string) bool { return !strings.HasPrefix(name, prefix) })
	if len(ours) == 0 {
		return nil
	}
	for _, name := range chains {
		if err := removeJumps(ipt, table, name, prefix); err != nil {
			return err
		}
	}
	for _, name := range ours { // one may lead to another
		if err := ipt.ClearChain(table, name); err != nil {
			return err
		}
	}
	for _, name := range ours {
		if err := ipt.DeleteChain(table, name); err != nil {
			return err
		}
	}
	return nil
}

func removeJumps(ipt ruleTables, table, chain, prefix string) error {
	if strings.HasPrefix(chain, prefix) {
		return nil
	}
	lines, err := ipt.List(table, chain)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if target, ok := strings.CutPrefix(line, "-A "+chain+" -j "); ok && strings.HasPrefix(target, prefix) {
			if err := ipt.Delete(table, chain, "-j", target); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j jump) spec() string { return "-j " + j.to }

// String is j as a command would add it.
func (j jump) String() string {
	if j.last {
		return fmt.Sprintf("-A %s %s", j.from, j.spec())
	}
	return fmt.Sprintf("-I %s 1 %s", j.from, j.spec())
}
