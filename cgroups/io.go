package cgroups

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

// The files of the rates, on v1 and on v2.
const (
	readBPSFile = "blkio.throttle.read_bps_device"
	ioMaxFile   = "io.max"
)

// ratesIO reports whether l bounds the traffic with disks.
func (l Limits) ratesIO() bool { return l.IOReadBPS != 0 || l.IOWriteBPS != 0 }

// CheckIO returns nil if h can enforce the rates of l. Otherwise the code is
// sbxerr.CgroupController. On v1 the kernel's own threads write cached pages, so a rate
// would bound direct writes only.
func (h Host) CheckIO(l Limits) error {
	const op = "cgroups.check"
	switch {
	case !l.ratesIO():
		return nil
	case h.IOLimit == finding.No || h.IOLimit == finding.Unknown && h.Controllers["io"] != finding.Yes:
		return sbxerr.WithRemedy(sbxerr.CgroupController, op,
			errors.New("bound I/O: the cgroup controller of I/O is missing, or cannot throttle a sandbox as a whole"),
			"use a kernel with CONFIG_BLK_DEV_THROTTLING and the cgroup controller io (blkio on cgroup v1, in a hierarchy of its own), or set no I/O rate")
	case l.IOWriteBPS != 0 && h.Mode != V2:
		return sbxerr.WithRemedy(sbxerr.CgroupController, op,
			fmt.Errorf("bound writes on cgroup %s: the kernel throttles only direct writes there", h.Mode),
			"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or set no io_write_bps; io_read_bps is enforced")
	}
	return nil
}

// blockIO renders the rates of l for the OCI runtime.
func (l Limits) blockIO() (*specs.LinuxBlockIO, error) {
	if !l.ratesIO() {
		return nil, nil
	}
	if l.Disks == "" {
		return nil, sbxerr.New(sbxerr.Internal, "cgroups.resources", "bound I/O: no disk is named")
	}
	out := &specs.LinuxBlockIO{}
	for _, disk := range strings.Fields(l.Disks) {
		var d specs.LinuxThrottleDevice
		if _, err := fmt.Sscanf(disk, "%d:%d", &d.Major, &d.Minor); err != nil {
			return nil, sbxerr.New(sbxerr.Internal, "cgroups.resources", "parse disk %q: %w", disk, err)
		}
		if d.Rate = uint64(l.IOReadBPS); d.Rate != 0 {
			out.ThrottleReadBpsDevice = append(out.ThrottleReadBpsDevice, d)
		}
		if d.Rate = uint64(l.IOWriteBPS); d.Rate != 0 {
			out.ThrottleWriteBpsDevice = append(out.ThrottleWriteBpsDevice, d)
		}
	}
	return out, nil
}

// rateFile is the limit file of the rates, whose value is empty without a rate.
func (l Limits) rateFile(h Host) File {
	if h.Mode == V2 {
		return File{"io", ioMaxFile, l.rateLines(func(disk string) string { return v2Rates(disk, l.IOReadBPS, l.IOWriteBPS) })}
	}
	return File{"blkio", readBPSFile, l.rateLines(func(disk string) string { return fmt.Sprintf("%s %d", disk, l.IOReadBPS) })}
}

// ofIO reports whether f has one line for each disk.
func (f File) ofIO() bool { return f.Name == readBPSFile || f.Name == ioMaxFile }

func (l Limits) rateLines(line func(disk string) string) string {
	var lines []string
	for _, disk := range strings.Fields(l.Disks) {
		if l.ratesIO() {
			lines = append(lines, line(disk))
		}
	}
	return sortedLines(lines)
}

// v2Rates is a line of io.max as the kernel shows it.
func v2Rates(disk string, read, write int64) string {
	rate := func(n int64) string {
		if n == 0 {
			return "max"
		}
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s rbps=%s wbps=%s riops=max wiops=max", disk, rate(read), rate(write))
}

// ioWrites plans one write for each disk: the kernel takes no more at once.
func ioWrites(dir, name, from, to string) (out []write) {
	unbounded := func(disk string) string {
		if name == ioMaxFile {
			return v2Rates(disk, 0, 0)
		}
		return disk + " 0"
	}
	before, after := byDisk(from), byDisk(to)
	disks := maps.Clone(before)
	maps.Copy(disks, after)
	for _, disk := range slices.Sorted(maps.Keys(disks)) {
		w := write{dir, name, cmp.Or(before[disk], unbounded(disk)), cmp.Or(after[disk], unbounded(disk))}
		if w.old != w.new {
			out = append(out, w)
		}
	}
	return out
}

// LiftIO takes the rates of the group away. SIGKILL does not end a wait for a disk, so what
// was killed ends after that. An absent group is success.
func (g *Group) LiftIO() error {
	_, err := g.liftIO()
	return sbxerr.Wrap(sbxerr.Cgroup, "cgroups.lift_io", err)
}

// dispatchTime is how long the rates are away in FlushIO. The kernel dispatches what waits by
// a timer, whose ticks are up to 10 ms apart.
const dispatchTime = 30 * time.Millisecond

// FlushIO lets all that waits at the rates of the group go on at once. After it they are as
// before. A change of the limits must not run at the same time.
func (g *Group) FlushIO() error {
	writes, err := g.liftIO()
	if len(writes) > 0 {
		time.Sleep(dispatchTime)
	}
	if back := takeBack(writes); !gone(back) {
		err = errors.Join(err, back)
	}
	return sbxerr.Wrap(sbxerr.Cgroup, "cgroups.flush_io", err)
}

func (g *Group) liftIO() (done []write, err error) {
	f := Limits{}.rateFile(g.host)
	live, err := g.live(f)
	if err != nil && !gone(err) {
		return nil, err
	}
	writes := ioWrites(g.dir(f.Controller), f.Name, live, "")
	for i, w := range writes {
		if err := w.write(); err != nil && !gone(err) {
			return writes[:i], err
		}
	}
	return writes, nil
}

// byDisk takes the value of a limit file of I/O apart.
func byDisk(value string) map[string]string {
	lines := map[string]string{}
	for line := range strings.SplitSeq(value, lineSeparator) {
		if disk, _, ok := strings.Cut(line, " "); ok {
			lines[disk] = line
		}
	}
	return lines
}
