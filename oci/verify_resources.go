package oci

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func ruleCgroup(s *specs.Spec) error {
	p, r := s.Linux.CgroupsPath, s.Linux.Resources
	var errs []error
	if path.Clean(p) != p || path.Base(p) != path.Base(sandboxDir(s)) || strings.Count(p, "/") < 2 || p[0] != '/' || strings.Contains(p, ":") {
		errs = append(errs, fmt.Errorf("cgroup %q is not the sandbox's own below a parent", p))
	}
	if r == nil {
		return errors.Join(append(errs, errors.New("there are no resource limits"))...)
	}
	if r.Pids == nil || r.Pids.Limit == nil || *r.Pids.Limit <= 0 {
		errs = append(errs, errors.New("processes are not limited"))
	}
	if r.CPU == nil || r.CPU.Quota == nil || *r.CPU.Quota <= 0 || r.CPU.Period == nil || *r.CPU.Period == 0 || r.CPU.RealtimeRuntime != nil {
		errs = append(errs, errors.New("cpu time is not limited"))
	}
	if m := r.Memory; m == nil || m.Limit == nil || *m.Limit <= 0 {
		errs = append(errs, errors.New("memory is not limited"))
	} else if m.DisableOOMKiller != nil && *m.DisableOOMKiller || canSwap(m) {
		errs = append(errs, errors.New("memory can swap, or the oom killer is off"))
	}
	return errors.Join(errs...)
}

// ruleBlockIO: only rates of bytes are set, each for a disk, and none stalls the sandbox.
func ruleBlockIO(s *specs.Spec) error {
	if s.Linux.Resources == nil || s.Linux.Resources.BlockIO == nil {
		return nil
	}
	b := s.Linux.Resources.BlockIO
	errs := []error{only("block I/O", b, "ThrottleReadBpsDevice", "ThrottleWriteBpsDevice")}
	for _, list := range [][]specs.LinuxThrottleDevice{b.ThrottleReadBpsDevice, b.ThrottleWriteBpsDevice} {
		seen := map[[2]int64]bool{}
		for _, d := range list {
			number := [2]int64{d.Major, d.Minor}
			if d.Major <= 0 || d.Minor < 0 || seen[number] {
				errs = append(errs, fmt.Errorf("block I/O names no disk by %d:%d, or names it twice", d.Major, d.Minor))
			}
			seen[number] = true
			if d.Rate < 64<<10 {
				errs = append(errs, fmt.Errorf("block I/O is throttled to %d bytes per second, fewer than 64K", d.Rate))
			}
		}
	}
	return errors.Join(errs...)
}

// canSwap: the limit of memory and swap together is that of memory. An absent
// one means that the kernel has no swap; only the live values can tell.
func canSwap(m *specs.LinuxMemory) bool { return m.Swap != nil && *m.Swap != *m.Limit }

// ruleUnified: raw cgroup v2 files can undo every limit, so only known ones are
// written, and huge pages, which no memory limit covers, not at all.
func ruleUnified(s *specs.Spec) error {
	if s.Linux.Resources == nil {
		return nil // ruleCgroup says so
	}
	for _, h := range s.Linux.Resources.HugepageLimits {
		if h.Limit != 0 {
			return fmt.Errorf("huge pages of %s can be used", h.Pagesize)
		}
	}
	for key, value := range s.Linux.Resources.Unified {
		switch {
		case key == "memory.oom.group" && value == "0", key == "memory.swap.max" && value == "0", key == "cpu.weight":
		default:
			return fmt.Errorf("cgroup file %q is set to %q", key, value)
		}
	}
	return nil
}

// harmless are the devices that a sandbox can open: null, zero, full, random,
// urandom, tty, ptmx and the terminals of its own.
var harmless = []string{"c 1:3", "c 1:5", "c 1:7", "c 1:8", "c 1:9", "c 5:0", "c 5:2", "c 136:*"}

func ruleDevices(s *specs.Spec) error {
	if s.Linux.Resources == nil || len(s.Linux.Resources.Devices) == 0 {
		return errors.New("devices are not limited")
	}
	var errs []error
	for i, d := range s.Linux.Resources.Devices {
		switch {
		case i == 0 && (d.Allow || d.Type != "" && d.Type != "a" || d.Major != nil || d.Minor != nil || d.Access != "rwm"):
			errs = append(errs, errors.New("device rules do not deny all first"))
		case i > 0 && d.Allow && !slices.Contains(harmless, deviceName(d)):
			errs = append(errs, fmt.Errorf("device %s can be opened", deviceName(d)))
		}
	}
	return errors.Join(errs...)
}

func deviceName(d specs.LinuxDeviceCgroup) string {
	number := func(n *int64) string {
		if n == nil || *n < 0 {
			return "*"
		}
		return fmt.Sprint(*n)
	}
	return d.Type + " " + number(d.Major) + ":" + number(d.Minor)
}
