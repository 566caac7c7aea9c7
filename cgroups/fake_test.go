package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/finding"
)

// fakeHost is a tree of plain files that looks like a host to a detector.
type fakeHost struct {
	t    *testing.T
	dir  string
	fses map[string]int64 // path: magic of the file system mounted there
}

func newFakeHost(t *testing.T) *fakeHost {
	f := &fakeHost{t: t, dir: t.TempDir(), fses: map[string]int64{}}
	f.write("proc/swaps", "Filename\tType\n")
	f.write("hugepages/hugepages-2048kB/nr_hugepages", "0")
	f.write("hugepages/hugepages-1048576kB/nr_hugepages", "0")
	f.write("hugepages/hugepages-64kB/nr_hugepages", "0")
	return f
}

func (f *fakeHost) root() string { return filepath.Join(f.dir, "cgroup") }

func (f *fakeHost) write(path, content string) {
	f.t.Helper()
	path = filepath.Join(f.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fakeHost) detector() detector {
	return detector{
		root:      f.root(),
		proc:      filepath.Join(f.dir, "proc"),
		hugePages: filepath.Join(f.dir, "hugepages"),
		magic: func(path string) (int64, error) {
			if magic, ok := f.fses[path]; ok {
				return magic, nil
			}
			return 0, &fs.PathError{Op: "statfs", Path: path, Err: fs.ErrNotExist}
		},
		bpf: func(string) finding.Answer { return finding.Yes },
	}
}

// v1 mounts hierarchies; each is "directory" or "directory:option,option".
func (f *fakeHost) v1(hierarchies ...string) *fakeHost {
	f.fses[f.root()] = unix.TMPFS_MAGIC
	var mountinfo, table strings.Builder
	table.WriteString("#subsys_name\thierarchy\tnum_cgroups\tenabled\n")
	fmt.Fprintf(&mountinfo, "31 23 0:28 / %s rw,relatime - tmpfs tmpfs rw,mode=755\n", f.root())
	for i, h := range hierarchies {
		dir, options, ok := strings.Cut(h, ":")
		if !ok {
			options = dir
		}
		path := filepath.Join(f.root(), dir)
		f.write("cgroup/"+dir+"/cgroup.procs", "")
		f.fses[path] = unix.CGROUP_SUPER_MAGIC
		fmt.Fprintf(&mountinfo, "%d 31 0:%d / %s rw,relatime shared:%d - cgroup cgroup rw,xattr,%s\n", 32+i, 29+i, path, i, options)
		for name := range strings.SplitSeq(options, ",") {
			if !strings.HasPrefix(name, "name=") {
				fmt.Fprintf(&table, "%s\t%d\t1\t1\n", name, i)
			}
		}
	}
	f.write("proc/self/mountinfo", mountinfo.String())
	f.write("proc/cgroups", table.String())
	f.write("cgroup/memory/memory.memsw.limit_in_bytes", "9223372036854771712\n")
	return f
}

// hybrid adds an empty cgroup2 hierarchy to v1.
func (f *fakeHost) hybrid() *fakeHost {
	f.fses[filepath.Join(f.root(), "unified")] = unix.CGROUP2_SUPER_MAGIC
	f.write("cgroup/unified/cgroup.procs", "")
	f.write("cgroup/unified/cgroup.controllers", "\n")
	return f
}

func (f *fakeHost) v2(controllers string) *fakeHost {
	f.fses[f.root()] = unix.CGROUP2_SUPER_MAGIC
	f.write("cgroup/cgroup.controllers", controllers+"\n")
	f.write("cgroup/cgroup.procs", "")
	f.write("cgroup/init.scope/memory.swap.max", "max\n")
	return f
}

func (f *fakeHost) detect() Host {
	f.t.Helper()
	h, err := f.detector().detect()
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

// usual is what a complete v1 host mounts.
var usual = []string{"cpu,cpuacct:cpu,cpuacct", "memory", "devices", "freezer", "blkio", "pids", "hugetlb", "systemd:name=systemd"}

// group puts files into /caisson/one. On v1 a file goes to the hierarchy of
// its prefix.
func (f *fakeHost) group(h Host, files map[string]string) *Group {
	f.t.Helper()
	g, err := Open(h, "/caisson/one")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, dir := range g.dirs() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	for name, content := range files {
		controller, _, _ := strings.Cut(name, ".")
		if err := os.WriteFile(filepath.Join(g.dir(controller), name), []byte(content), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	return g
}

// clear empties the plain files of a fake group, as the kernel's files vanish
// with their directory, so that rmdir works on it.
func (f *fakeHost) clear(dir string) {
	f.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			f.clear(filepath.Join(dir, e.Name()))
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			f.t.Fatal(err)
		}
	}
}
