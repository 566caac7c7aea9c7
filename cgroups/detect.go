package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

// detector reads a host. Its fields are where the host is found; tests point
// them at trees of their own.
type detector struct {
	root      string // where the hierarchies are mounted
	proc      string
	hugePages string // has one directory per huge page size
	magic     func(path string) (int64, error)
	bpf       func(dir string) finding.Answer // can device programs be attached below dir?
}

func systemDetector() detector {
	return detector{
		root:      "/sys/fs/cgroup",
		proc:      "/proc",
		hugePages: "/sys/kernel/mm/hugepages",
		magic:     fsMagic,
		bpf:       deviceProgramsWork,
	}
}

// Detect reads the layout of this machine. It changes nothing. A host without
// any cgroups is an error with code sbxerr.CgroupController; one that merely
// lacks a controller is not, see Host.Check.
func Detect() (Host, error) { return systemDetector().detect() }

func (d detector) detect() (Host, error) {
	const op = "cgroups.detect"
	magic, err := d.magic(d.root)
	if err != nil {
		return Host{}, sbxerr.New(sbxerr.CgroupController, op, "find cgroups at %q: %w", d.root, err)
	}
	h := Host{Controllers: map[string]finding.Answer{}}
	if _, err := os.Stat(filepath.Join(d.proc, "swaps")); errors.Is(err, fs.ErrNotExist) {
		h.NoSwap = true // proc_fs(5): there only with CONFIG_SWAP
	}
	if magic == unix.CGROUP2_SUPER_MAGIC {
		err = d.detectV2(&h)
	} else {
		err = d.detectV1(&h)
	}
	if err != nil {
		return Host{}, sbxerr.Wrap(sbxerr.CgroupController, op, err)
	}
	if h.Controllers["hugetlb"] == finding.Yes {
		h.HugePageSizes = d.hugePageSizes()
	} else {
		h.UnboundHugePages = d.haveHugePages()
	}
	return h, nil
}

func (d detector) detectV2(h *Host) error {
	h.Mode, h.Unified, h.Tags = V2, d.root, finding.Yes // threads are of 4.14, cgroup.freeze of 5.2
	list, err := readString(d.root, "cgroup.controllers")
	if err != nil {
		return err
	}
	available := strings.Fields(list)
	for _, name := range controllerNames() {
		h.Controllers[name] = finding.Of(slices.Contains(available, name))
	}
	// These have no controller on v2: cpu.stat and cgroup.freeze are part of
	// every group, devices are kept out by a BPF program.
	for _, name := range []string{"cpuacct", "blkio", "freezer"} {
		delete(h.Controllers, name)
	}
	h.Controllers["devices"] = d.bpf(d.root)
	h.SwapLimit = d.childrenHave("memory.swap.max")
	if h.IOLimit = h.Controllers["io"]; h.IOLimit == finding.Yes {
		h.IOLimit = d.childrenHave(ioMaxFile)
	}
	return nil
}

// childrenHave looks for a file that the root group lacks in the groups right
// below it. No group to look at is no answer; neither is a group that lacks
// the file, because its controller may only not be enabled there.
func (d detector) childrenHave(file string) finding.Answer {
	found, err := filepath.Glob(filepath.Join(d.root, "*", file))
	if err != nil || len(found) == 0 {
		return finding.Unknown
	}
	return finding.Yes
}

func (d detector) detectV1(h *Host) error {
	h.Mode, h.Hierarchies = V1, map[string]string{}
	known, err := d.kernelControllers()
	if err != nil {
		return err
	}
	mounts, err := d.v1Mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		for _, option := range strings.Split(m.VFSOptions, ",") {
			if slices.Contains(known, option) || strings.HasPrefix(option, "name=") {
				h.Hierarchies[option] = m.Mountpoint
			}
		}
	}
	if len(h.Hierarchies) == 0 {
		return fmt.Errorf("find a cgroup hierarchy mounted in %q: there is none", d.root)
	}
	for _, name := range controllerNames() {
		_, mounted := h.Hierarchies[name]
		h.Controllers[name] = finding.Of(mounted)
	}
	delete(h.Controllers, "io") // blkio's name on v2
	unified := filepath.Join(d.root, "unified")
	if magic, err := d.magic(unified); err == nil && magic == unix.CGROUP2_SUPER_MAGIC {
		h.Mode, h.Unified = Hybrid, unified
	}
	h.IOLimit, h.Tags = finding.Of(h.throttles()), finding.Of(h.canTag())
	if memory, ok := h.Hierarchies["memory"]; ok {
		_, err := os.Stat(filepath.Join(memory, "memory.memsw.limit_in_bytes"))
		switch {
		case err == nil:
			h.SwapLimit = finding.Yes
		case errors.Is(err, fs.ErrNotExist):
			h.SwapLimit = finding.No
		}
	}
	return nil
}

// throttles reports whether v1's blkio can throttle, and whether all commands of a sandbox
// are in its one group there: the rates of a group do not hold for those below it.
func (h *Host) throttles() bool {
	blkio, ok := h.Hierarchies["blkio"]
	shared := slices.ContainsFunc(childControllers, func(name string) bool { return h.Hierarchies[name] == blkio })
	_, err := os.Stat(filepath.Join(blkio, readBPSFile))
	return ok && !shared && err == nil
}

// kernelControllers reads the names that a v1 mount option can mean.
func (d detector) kernelControllers() ([]string, error) {
	data, err := os.ReadFile(filepath.Join(d.proc, "cgroups"))
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if name, _, ok := strings.Cut(line, "\t"); ok && !strings.HasPrefix(name, "#") {
			names = append(names, name)
		}
	}
	return names, nil
}

// v1Mounts returns the hierarchies mounted right below root, which is where
// runc looks for them. A mount that something else was mounted over is not
// one of them any more.
func (d detector) v1Mounts() ([]*mountinfo.Info, error) {
	data, err := os.ReadFile(filepath.Join(d.proc, "self", "mountinfo"))
	if err != nil {
		return nil, err
	}
	return mountinfo.GetMountsFromReader(bytes.NewReader(data), func(m *mountinfo.Info) (skip, stop bool) {
		if m.FSType != "cgroup" || filepath.Dir(m.Mountpoint) != d.root {
			return true, false
		}
		magic, err := d.magic(m.Mountpoint)
		return err != nil || magic != unix.CGROUP_SUPER_MAGIC, false
	})
}

// hugePageSizes names the sizes as the hugetlb controller does: the kernel
// calls the directory of 2 MiB pages hugepages-2048kB and the file
// hugetlb.2MB.
func (d detector) hugePageSizes() []string {
	entries, err := os.ReadDir(d.hugePages)
	if err != nil {
		return nil // no huge pages configured into the kernel
	}
	var sizes []string
	for _, e := range entries {
		digits := strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB")
		kib, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			continue
		}
		switch {
		case kib >= 1<<20:
			sizes = append(sizes, fmt.Sprintf("%dGB", kib>>20))
		case kib >= 1<<10:
			sizes = append(sizes, fmt.Sprintf("%dMB", kib>>10))
		default:
			sizes = append(sizes, fmt.Sprintf("%dKB", kib))
		}
	}
	return sizes
}

// haveHugePages reports whether there are huge pages that a process could
// get: reserved ones, or leave to make them on demand. A count that cannot be
// read might be any.
func (d detector) haveHugePages() bool {
	for _, file := range []string{"nr_hugepages", "nr_overcommit_hugepages"} {
		paths, err := filepath.Glob(filepath.Join(d.hugePages, "*", file))
		if err != nil {
			return true
		}
		for _, path := range paths {
			if n, err := readInt(filepath.Dir(path), file); err != nil || n > 0 {
				return true
			}
		}
	}
	return false
}

// controllerNames are all that the package asks about.
func controllerNames() []string {
	var names []string
	for _, c := range slices.Concat(required, wanted) {
		names = append(names, c.name)
	}
	return names
}

func fsMagic(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(st.Type), nil
}
