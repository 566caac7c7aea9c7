package cgroups

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

func TestDetectV1(t *testing.T) {
	f := newFakeHost(t).v1(usual...)
	h := f.detect()
	if h.Mode != V1 || h.Unified != "" || h.SwapLimit != finding.Yes || h.NoSwap {
		t.Errorf("got %+v", h)
	}
	both := filepath.Join(f.root(), "cpu,cpuacct")
	if h.Hierarchies["cpu"] != both || h.Hierarchies["cpuacct"] != both {
		t.Errorf("cpu and cpuacct are at %q and %q; want both at %q", h.Hierarchies["cpu"], h.Hierarchies["cpuacct"], both)
	}
	if h.Hierarchies["name=systemd"] == "" || h.Hierarchies["xattr"] != "" {
		t.Errorf("hierarchies %v", h.Hierarchies)
	}
	if n := len(h.mounts()); n != len(usual) {
		t.Errorf("%d mounts %q; want %d", n, h.mounts(), len(usual))
	}
	if want := []string{"1GB", "2MB", "64KB"}; !slices.Equal(h.HugePageSizes, want) {
		t.Errorf("huge pages %q; want %q", h.HugePageSizes, want)
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
}

func TestDetectHybrid(t *testing.T) {
	f := newFakeHost(t).v1(usual...).hybrid()
	h := f.detect()
	if h.Mode != Hybrid || h.Unified != filepath.Join(f.root(), "unified") {
		t.Errorf("got %+v", h)
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
	if h.mount("memory") != filepath.Join(f.root(), "memory") {
		t.Errorf("memory is at %q; the unified hierarchy has no controllers", h.mount("memory"))
	}
}

func TestDetectV2(t *testing.T) {
	f := newFakeHost(t).v2("cpuset cpu io memory hugetlb pids rdma misc")
	h := f.detect()
	if h.Mode != V2 || h.Unified != f.root() || h.SwapLimit != finding.Yes {
		t.Errorf("got %+v", h)
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
}

// A v2 host on which nothing has groups yet cannot tell about swap; Verify
// does after the first group was made.
func TestDetectV2WithoutGroups(t *testing.T) {
	f := newFakeHost(t).v2("cpu memory pids")
	if err := os.RemoveAll(filepath.Join(f.root(), "init.scope")); err != nil {
		t.Fatal(err)
	}
	h := f.detect()
	if h.SwapLimit != finding.Unknown || h.Check() != nil || h.HugePageSizes != nil {
		t.Errorf("got %+v, %v", h, h.Check())
	}
}

// What was mounted over a hierarchy is not that hierarchy.
func TestDetectIgnoresWhatIsNoHierarchy(t *testing.T) {
	f := newFakeHost(t).v1(usual...)
	f.fses[filepath.Join(f.root(), "pids")] = unix.TMPFS_MAGIC
	h := f.detect()
	if h.Controllers["pids"] != finding.No {
		t.Errorf("pids: %s; want no", h.Controllers["pids"])
	}
	// A second mount of a hierarchy elsewhere is where runc does not look.
	f = newFakeHost(t).v1("memory")
	f.write("proc/self/mountinfo", "40 1 0:40 / /elsewhere/memory rw - cgroup cgroup rw,memory\n")
	if _, err := f.detector().detect(); sbxerr.Of(err) != sbxerr.CgroupController {
		t.Errorf("got %v; want a refusal", err)
	}
}

func TestDetectErrors(t *testing.T) {
	for name, f := range map[string]*fakeHost{
		"nothing mounted": newFakeHost(t),
		"empty tmpfs":     newFakeHost(t).v1(),
	} {
		if h, err := f.detector().detect(); sbxerr.Of(err) != sbxerr.CgroupController || h.Mode != "" {
			t.Errorf("%s: %+v, %v; want a refusal", name, h, err)
		}
	}
	for _, file := range []string{"proc/cgroups", "proc/self/mountinfo"} {
		f := newFakeHost(t).v1(usual...)
		if err := os.Remove(filepath.Join(f.dir, file)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.detector().detect(); err == nil {
			t.Errorf("without %s there is no error", file)
		}
	}
	f := newFakeHost(t).v2("cpu")
	if err := os.Remove(filepath.Join(f.root(), "cgroup.controllers")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.detector().detect(); err == nil {
		t.Error("without cgroup.controllers there is no error")
	}
}

func TestCheckRefusesWhatIsMissing(t *testing.T) {
	complete := newFakeHost(t).v1(usual...).detect()
	for name, tc := range map[string]struct {
		change func(*Host)
		want   string
	}{
		"nothing":          {func(h *Host) { *h = Host{} }, "layout"},
		"another mode":     {func(h *Host) { h.Mode = "v3" }, "layout"},
		"no memory":        {func(h *Host) { h.Controllers["memory"] = finding.No }, `"memory"`},
		"no cpu":           {func(h *Host) { delete(h.Controllers, "cpu") }, `"cpu"`},
		"pids not told":    {func(h *Host) { h.Controllers["pids"] = finding.Unknown }, "could not tell"},
		"no devices":       {func(h *Host) { h.Controllers["devices"] = finding.No }, `"devices"`},
		"huge pages":       {func(h *Host) { h.UnboundHugePages = true }, "hugetlb"},
		"no swap limit":    {func(h *Host) { h.SwapLimit = finding.No }, "swap"},
		"swap not told":    {func(h *Host) { h.SwapLimit = finding.Unknown }, "swap"},
		"no swap limit v2": {func(h *Host) { h.Mode, h.SwapLimit = V2, finding.No }, "swap"},
	} {
		h := complete
		h.Controllers = map[string]finding.Answer{}
		for k, v := range complete.Controllers {
			h.Controllers[k] = v
		}
		tc.change(&h)
		err := h.Check()
		if sbxerr.Of(err) != sbxerr.CgroupController || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v; want %s with %s", name, err, sbxerr.CgroupController, tc.want)
		}
		if _, err := sane.Resources(h); sbxerr.Of(err) != sbxerr.CgroupController {
			t.Errorf("%s: Resources = %v; want the same refusal", name, err)
		}
	}
	swapless := complete
	swapless.SwapLimit, swapless.NoSwap = finding.No, true
	if err := swapless.Check(); err != nil {
		t.Errorf("a kernel without swap needs no limit of it: %v", err)
	}
}

func TestDetectHugePages(t *testing.T) {
	for name, tc := range map[string]struct {
		mounts      []string
		file, count string
		want        bool
	}{
		"forbidden":    {usual, "nr_hugepages", "8", false},
		"none":         {[]string{"memory"}, "nr_hugepages", "0", false},
		"reserved":     {[]string{"memory"}, "nr_hugepages", "8", true},
		"on demand":    {[]string{"memory"}, "nr_overcommit_hugepages", "8", true},
		"not readable": {[]string{"memory"}, "nr_hugepages", "?", true},
	} {
		f := newFakeHost(t).v1(tc.mounts...)
		f.write("hugepages/hugepages-2048kB/"+tc.file, tc.count+"\n")
		if h := f.detect(); h.UnboundHugePages != tc.want {
			t.Errorf("%s: unbound huge pages %v; want %v", name, h.UnboundHugePages, tc.want)
		}
	}
}

// Detect must agree with what this machine's /proc says, whatever it is.
func TestDetectThisHost(t *testing.T) {
	h, err := Detect()
	if err != nil {
		t.Skipf("needs a host with cgroups: %v", err)
	}
	again, err := Detect()
	if err != nil || !reflect.DeepEqual(h, again) {
		t.Errorf("two answers differ: %+v and %+v, %v", h, again, err)
	}
	for _, m := range h.mounts() {
		if _, err := os.Stat(filepath.Join(m, "cgroup.procs")); err != nil {
			t.Errorf("%q is no hierarchy: %v", m, err)
		}
	}
}
