package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/finding"
)

// probeLimits are the limits that Probe writes into its group.
var probeLimits = Limits{PIDs: settings.Row("pids").Min, MemoryBytes: settings.Row("memory_bytes").Min, MilliCPU: settings.Row("milli_cpu").Min}

// Probe finds out which limits this host can enforce. It makes a group in parent, writes
// limits into it, reads them back and removes it. It also removes parent if it made it. It
// changes nothing else. If v2's controllers are not delegated below the root yet, it does
// not write: the first sandbox delegates them.
func Probe(ctx context.Context, parent string) []finding.Feature {
	h, err := Detect()
	if err != nil {
		return []finding.Feature{{Name: "cgroup layout", Answer: finding.No, Needed: true, Err: err}}
	}
	return probe(ctx, h, parent)
}

func probe(ctx context.Context, h Host, parent string) []finding.Feature {
	found := []finding.Feature{{Name: "cgroup layout", Answer: finding.Yes, Needed: true, Detail: string(h.Mode)}}
	for _, c := range required {
		found = append(found, h.controllerFeature(c, true))
	}
	for _, c := range wanted {
		if _, asked := h.Controllers[c.name]; asked {
			found = append(found, h.controllerFeature(c, false))
		}
	}
	create := probeGroup(ctx, h, parent)
	if create.Answer == finding.Yes {
		h.SwapLimit = finding.Yes // it was written and read back
	}
	return append(found, h.swapFeature(), create)
}

func (h Host) controllerFeature(c controller, needed bool) finding.Feature {
	needed = needed || c.name == "hugetlb" && h.UnboundHugePages
	f := finding.Feature{Name: "cgroup controller " + c.name, Answer: h.Controllers[c.name], Needed: needed, Detail: "for " + c.why}
	if f.Answer != finding.Yes {
		f.Err = fmt.Errorf("find cgroup controller %q: %s", c.name, f.Answer)
	}
	return f
}

func (h Host) swapFeature() finding.Feature {
	f := finding.Feature{Name: "cgroup swap limit", Answer: h.SwapLimit, Needed: h.Mode != V2}
	switch {
	case h.NoSwap:
		f.Answer, f.Detail = finding.Yes, "the kernel has no swap"
	case f.Answer == finding.Yes:
		f.Detail = "a sandbox gets none"
	default:
		f.Err = fmt.Errorf("find swap accounting: %s", f.Answer)
	}
	return f
}

// probeGroup makes, bounds and removes a group.
func probeGroup(ctx context.Context, h Host, parent string) finding.Feature {
	f := finding.Feature{Name: "cgroup create", Needed: true, Answer: finding.No}
	g, err := Open(h, "/"+parent+"/probe-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		f.Answer, f.Err = finding.Unknown, err
		return f
	}
	if h.Mode == V2 && !h.delegated() {
		// No reason to fail: every host that boots without systemd is so.
		f.Answer, f.Needed = finding.Unknown, false
		f.Detail = "the first sandbox will hand the controllers down"
		f.Err = errors.New("the controllers are not enabled for groups below the root yet")
		return f
	}
	made, err := makeParent(h, parent)
	if err == nil {
		err = g.tryLimits(probeLimits)
	}
	err = errors.Join(err, g.Remove(ctx))
	if made {
		err = errors.Join(err, RemoveParent(ctx, h, parent))
	}
	if err != nil {
		f.Err = err
		return f
	}
	f.Answer, f.Detail = finding.Yes, "made, bounded and removed a group in /"+parent
	return f
}

// makeParent makes the parent in every hierarchy and reports whether it was
// in none before.
func makeParent(h Host, parent string) (made bool, err error) {
	made = true
	for _, m := range h.mounts() {
		err := os.Mkdir(filepath.Join(m, parent), 0o755)
		if errors.Is(err, fs.ErrExist) {
			made = false
			continue
		}
		if err != nil {
			return made, err
		}
	}
	return made, handDown(h, filepath.Join(h.Unified, parent))
}

// delegated reports whether v2's root hands down the controllers of the limits.
func (h Host) delegated() bool { return delegatedAt(h.Unified) }

func handDown(h Host, dir string) error {
	if h.Mode != V2 {
		return nil
	}
	return writeFile(dir, "cgroup.subtree_control", "+"+strings.Join(childrenGet, " +"))
}

// tryLimits makes the group, writes the files that an OCI runtime writes, and reads them
// back. It leaves out devices: on v2 they take a program.
func (g *Group) tryLimits(l Limits) error {
	for _, dir := range g.dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for _, file := range l.Files(g.host) {
		if file.Controller == "devices" || file.Controller == "hugetlb" {
			continue
		}
		if err := writeFile(g.dir(file.Controller), file.Name, file.Value); err != nil {
			return err
		}
		live, err := g.live(file)
		if err != nil {
			return err
		}
		if live != file.Value {
			return sbxerr.New(sbxerr.Cgroup, "cgroups.probe", "write %q to %s: it reads %q afterwards", file.Value, file.Name, live)
		}
	}
	return nil
}
