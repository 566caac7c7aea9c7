package cgroups

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
)

// write is one limit file that changes.
type write struct {
	dir, name string
	old, new  string
}

// errUsage says that the current usage exceeds the new limit.
var errUsage = errors.New("more is in use")

// Change changes the limits of a live group and writes only the differences. Afterwards
// either all of to is in force, or all of from: if a write fails, the earlier ones are
// undone.
//
// A limit of memory or tasks below the current usage is refused (sbxerr.State). Before that
// the kernel is asked to reclaim memory, for at most a second. Nothing is killed, unless
// the group grows again at that very moment on v2. On v1 a command's
// own CPU quota that would exceed the new one is lowered with it, as the kernel
// allows no other; raising the limit again does not raise it.
//
// Change does not read the live values: from must hold the values written before. Set
// reads them itself. Changes of one group must not run at the same time.
func (g *Group) Change(from, to Limits) error {
	if err := errors.Join(from.Validate(), to.Validate()); err != nil {
		return err
	}
	old := map[string]string{}
	for _, f := range from.files(g.host) {
		old[f.Name] = f.Value
	}
	return g.change(old, to)
}

// Set brings the limits of a live group to l, whatever they are. It is idempotent,
// and otherwise as Change. The device list is not its affair; Verify compares it.
func (g *Group) Set(l Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	old := map[string]string{}
	for _, f := range l.files(g.host) {
		live, err := g.live(f)
		if err != nil {
			return sbxerr.Wrap(sbxerr.Cgroup, "cgroups.set", err)
		}
		old[f.Name] = live
	}
	return g.change(old, l)
}

func (g *Group) change(old map[string]string, to Limits) error {
	if err := g.host.CheckIO(to); err != nil {
		return err
	}
	writes, err := g.writes(old, to)
	if err == nil {
		err = g.fits(writes, to)
	}
	if err == nil {
		err = apply(writes)
	}
	if err == nil {
		return nil
	}
	code := sbxerr.Cgroup
	if errors.Is(err, errUsage) {
		code = sbxerr.State
	}
	return sbxerr.Wrap(code, "cgroups.set", fmt.Errorf("change limits of %q: %w", g.path, err))
}

// writes plans the writes, in an order that the kernel accepts.
func (g *Group) writes(old map[string]string, to Limits) ([]write, error) {
	var out []write
	for _, f := range to.files(g.host) {
		switch {
		case f.Value == old[f.Name] || f.Name == "devices.list":
		case f.ofIO():
			out = append(out, ioWrites(g.dir(f.Controller), f.Name, old[f.Name], f.Value)...)
		default:
			out = append(out, write{g.dir(f.Controller), f.Name, old[f.Name], f.Value})
		}
	}
	swapFirst(out)
	if g.host.Mode == V2 {
		return out, nil
	}
	below, err := g.lowerQuotas(out, to)
	return append(below, out...), err
}

// swapFirst: on v1 the limit of memory may at no time exceed the one of memory and
// swap together, so a rising pair goes up from the other end.
func swapFirst(writes []write) {
	i := slices.IndexFunc(writes, func(w write) bool { return w.name == "memory.limit_in_bytes" })
	j := slices.IndexFunc(writes, func(w write) bool { return w.name == "memory.memsw.limit_in_bytes" })
	if i >= 0 && j >= 0 && rises(writes[i]) {
		writes[i], writes[j] = writes[j], writes[i]
	}
}

// rises compares the numbers. A value without a number, "max", is the highest.
func rises(w write) bool {
	old, err := parseInt(w.dir, w.name, w.old)
	if err != nil {
		return false
	}
	n, err := parseInt(w.dir, w.name, w.new)
	return err == nil && n > old
}

// lowerQuotas plans the quotas of children, which on v1 may not exceed their
// parent's.
func (g *Group) lowerQuotas(planned []write, to Limits) ([]write, error) {
	const file = "cpu.cfs_quota_us"
	if !slices.ContainsFunc(planned, func(w write) bool { return w.name == file && !rises(w) }) {
		return nil, nil
	}
	children, err := subdirs(g.dir("cpu"))
	if err != nil {
		return nil, err
	}
	var out []write
	for _, name := range children {
		dir := filepath.Join(g.dir("cpu"), name)
		live, err := readQuota(dir)
		switch {
		case gone(err):
		case err != nil:
			return nil, err
		case live > to.MilliCPU && live <= settings.MaxMilliCPU: // above it, there is no quota
			out = append(out, write{dir, file, strconv.FormatInt(live*(cpuPeriod/1000), 10), strconv.FormatInt(to.quota(), 10)})
		}
	}
	return out, nil
}

// fits refuses a limit below the current usage if the kernel would accept it: v2 kills
// until memory fits, and both versions let excess tasks live on.
func (g *Group) fits(writes []write, to Limits) error {
	for _, w := range writes {
		if w.name != "pids.max" && w.name != "memory.max" || rises(w) {
			continue
		}
		current, limit := "pids.current", to.PIDs
		if w.name == "memory.max" {
			current, limit = "memory.current", to.MemoryBytes
			if err := reclaim(w.dir, limit); err != nil {
				return err
			}
		}
		used, err := readInt(w.dir, current)
		if err != nil {
			return err
		}
		if used > limit {
			return fmt.Errorf("set %s to %s: %w (%d)", w.name, w.new, errUsage, used)
		}
	}
	return nil
}

// reclaim asks v2 to reclaim the memory above limit (memory.reclaim, kernel 5.19). It may
// fail: the caller checks the result.
func reclaim(dir string, limit int64) error {
	used, err := readInt(dir, "memory.current")
	if err != nil || used <= limit {
		return err
	}
	err = writeReclaiming(dir, "memory.reclaim", strconv.FormatInt(used-limit, 10))
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, errUsage) && !gone(err) {
		return fmt.Errorf("reclaim memory: %w", err)
	}
	return nil
}

// apply writes all or nothing, unless undoing a write fails too.
func apply(writes []write) error {
	for i, w := range writes {
		err := w.write()
		if err == nil {
			continue
		}
		err = fmt.Errorf("set %s to %s: %w", w.name, w.new, err)
		if errors.Is(err, unix.EBUSY) { // v1's word for memory that cannot be reclaimed
			err = fmt.Errorf("%w: %w", errUsage, err)
		}
		return errors.Join(err, takeBack(writes[:i]))
	}
	return nil
}

// write sets the file. A lower limit of memory makes the kernel reclaim.
func (w write) write() error {
	if strings.HasPrefix(w.name, "memory.") && !rises(w) {
		return writeReclaiming(w.dir, w.name, w.new)
	}
	return writeFile(w.dir, w.name, w.new)
}

func takeBack(writes []write) error {
	var errs []error
	for _, w := range slices.Backward(writes) {
		if err := (write{w.dir, w.name, w.new, w.old}).write(); err != nil {
			errs = append(errs, fmt.Errorf("set %s back to %s: %w", w.name, w.old, err))
		}
	}
	return errors.Join(errs...)
}
