package netns

import (
	"errors"
	"net/netip"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Program puts the rules of a redirect in force in the namespace at path, which Create made,
// and returns how those before differed: a new one has none. Rules that cannot be programmed
// have code sbxerr.NetRule, others that are there and stay sbxerr.Posture.
func Program(path string) (before []Difference, err error) {
	const op = "netns.program"
	k, err := openInside(path)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer k.Close()
	before, err = k.secure()
	return before, wrapInner(op, err)
}

// secure is Program for k.
func (k *kernel) secure() (before []Difference, err error) {
	use, err := k.tablesInUse()
	if err != nil {
		return nil, err
	}
	if before, err = k.checkRules(declaredTables, netip.Addr{}); err != nil || len(before) == 0 {
		return nil, err
	}
	if err := k.program(use, declaredTables); err != nil {
		return nil, err
	}
	found, err := k.checkRules(declaredTables, netip.Addr{})
	switch {
	case err != nil || len(found) == 0:
		return before, err
	case use.none():
		return nil, sbxerr.New(sbxerr.NetRule, "netns.rules", "program the rules: they are others afterwards: %v", found)
	}
	return nil, sbxerr.New(sbxerr.Posture, "netns.rules", "somebody changed the rules, and not all could be replaced: %v", found)
}

// program puts the rules in force for both families at the same time. use is read before.
func (k *kernel) program(use tablesInUse, want func(family) []table) error {
	return k.eachFamily(use, func(f family, c command) error {
		return c.with(k.Do, func(ipt ruleTables) error { return program(ipt, want(f), use.none()) })
	})
}

func (k *kernel) tablesInUse() (use tablesInUse, err error) {
	err = k.Do(func() error { use, err = readTablesInUse(); return err })
	return use, err
}

// checkRules compares the rules with those that are wanted of a namespace with the address
// own, if it has one: by their digest, if rules with the same one were as they are wanted
// before.
func (k *kernel) checkRules(want func(family) []table, own netip.Addr) ([]Difference, error) {
	before, use, err := k.digest(want, own)
	if err != nil || before.isChecked() {
		return nil, err
	}
	found, err := k.listRules(use, want)
	if err != nil || len(found) > 0 {
		return found, err
	}
	after, _, err := k.digest(want, own)
	if err == nil && after == before { // nobody changed them meanwhile
		checked.Store(before, true)
	}
	return nil, err
}

func (k *kernel) digest(want func(family) []table, own netip.Addr) (d digest, use tablesInUse, err error) {
	err = k.Do(func() (err error) {
		if use, err = readTablesInUse(); err == nil {
			d, err = readDigest(use, own)
		}
		return err
	})
	return d.of(want, own), use, err
}

// listRules compares what the commands list.
func (k *kernel) listRules(use tablesInUse, want func(family) []table) ([]Difference, error) {
	used := map[family]backend{}
	var found []Difference
	var mu sync.Mutex
	err := k.eachFamily(use, func(f family, c command) error {
		return c.with(k.Do, func(ipt ruleTables) error {
			diffs, err := compareTables(ipt, f, want(f), use.shown(f, c.backend))
			mu.Lock()
			defer mu.Unlock()
			used[f], found = c.backend, append(found, diffs...)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return append(use.foreign(used), found...), nil
}

// eachFamily calls fn for every family that the kernel has, at the same time, with the
// command that sees the tables that are in use.
func (k *kernel) eachFamily(use tablesInUse, fn func(family, command) error) error {
	known, err := families()
	if err != nil {
		return err
	}
	commands := map[family]command{}
	for _, f := range known {
		if commands[f], err = findCommand(f, use.backend(f)); err != nil {
			return err
		}
	}
	errs := make(chan error, len(commands))
	for f, c := range commands {
		go func() { errs <- fn(f, c) }()
	}
	var all []error
	for range commands {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
