package cgroups

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestProcsOfAllHierarchies(t *testing.T) {
	f := newFakeHost(t).v1(usual...).hybrid()
	g := f.group(f.detect(), nil)
	for path, content := range map[string]string{
		"cgroup/memory/caisson/one/cgroup.procs":          "7\n3\n0\n-1\nx\n",
		"cgroup/pids/caisson/one/cgroup.procs":            "7\n",
		"cgroup/unified/caisson/one/below/cgroup.procs":   "11\n",
		"cgroup/memory/caisson/two/cgroup.procs":          "99\n",
		"cgroup/unified/caisson/one/below/b/cgroup.procs": "12\n",
	} {
		f.write(path, content)
	}
	pids, err := g.Procs()
	if want := []int{3, 7, 11, 12}; err != nil || !slices.Equal(pids, want) {
		t.Errorf("Procs = %v, %v; want %v", pids, err, want)
	}
	if n, err := g.Processes(); n != 2 || err != nil {
		t.Errorf("Processes = %d, %v; want the 2 of the memory hierarchy", n, err)
	}
}

func TestKillRefusesToKillItself(t *testing.T) {
	f := newFakeHost(t).v1(usual...)
	g := f.group(f.detect(), nil)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f.write("cgroup/pids/caisson/one/cgroup.procs", strconv.Itoa(self.Pid))
	if err := g.Kill(t.Context()); sbxerr.Of(err) != sbxerr.Internal {
		t.Errorf("Kill = %v; want a refusal", err)
	}
}

func TestKillGivesUpWithContext(t *testing.T) {
	f := newFakeHost(t).v2("cpu memory pids")
	g := f.group(f.detect(), map[string]string{"cgroup.kill": "", "cgroup.freeze": ""})
	const noSuchPID = 1 << 30 // above PID_MAX_LIMIT
	f.write("cgroup/caisson/one/cgroup.procs", strconv.Itoa(noSuchPID))
	gaveUp := errors.New("gave up")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gaveUp) // enough for the first round
	defer cancel()
	if err := g.Kill(ctx); !errors.Is(err, gaveUp) || !strings.Contains(err.Error(), strconv.Itoa(noSuchPID)) {
		t.Errorf("Kill = %v; want the cause and the pid", err)
	}
	for file, want := range map[string]string{"cgroup.kill": "1", "cgroup.freeze": "0"} {
		if got, err := readString(g.unified(), file); got != want || err != nil {
			t.Errorf("%s is %q, %v; want %q", file, got, err, want)
		}
	}
}

func TestRemove(t *testing.T) {
	f := newFakeHost(t).v1(usual...).hybrid()
	h := f.detect()
	g := f.group(h, nil)
	f.write("cgroup/memory/caisson/two/x", "")
	f.write("cgroup/unified/caisson/one/below/deeper/x", "")
	if ids, err := List(h, "caisson"); err != nil || !slices.Equal(ids, []string{"one", "two"}) {
		t.Errorf("List = %v, %v", ids, err)
	}
	for _, dir := range g.dirs() {
		f.clear(dir)
	}
	for range 2 {
		if err := g.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := List(h, "caisson"); err != nil || !slices.Equal(ids, []string{"two"}) || g.Exists() {
		t.Errorf("after Remove: List = %v, %v", ids, err)
	}
	if err := RemoveParent(t.Context(), h, "caisson"); err == nil || !strings.Contains(err.Error(), "two") {
		t.Errorf("RemoveParent with a child = %v; want a refusal that names it", err)
	}
	f.clear(filepath.Join(f.root(), "memory/caisson/two"))
	if err := os.Remove(filepath.Join(f.root(), "memory/caisson/two")); err != nil {
		t.Fatal(err)
	}
	if err := RemoveParent(t.Context(), h, "caisson"); err != nil {
		t.Fatal(err)
	}
	for _, m := range h.mounts() {
		if _, err := os.Stat(filepath.Join(m, "caisson")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s/caisson is still there: %v", m, err)
		}
	}
}

// One hierarchy that fails must not keep the others from being cleaned.
func TestRemoveGoesOnAfterErrors(t *testing.T) {
	f := newFakeHost(t).v1(usual...)
	g := f.group(f.detect(), nil)
	for _, dir := range g.dirs() {
		if !strings.Contains(dir, "/memory/") {
			f.clear(dir) // memory's keeps a file, so rmdir fails with ENOTEMPTY
		}
	}
	err := g.Remove(t.Context())
	if !errors.Is(err, unix.ENOTEMPTY) || sbxerr.Of(err) != sbxerr.Cgroup {
		t.Errorf("Remove = %v; want ENOTEMPTY", err)
	}
	for _, dir := range g.dirs() {
		_, err := os.Stat(dir)
		if strings.Contains(dir, "/memory/") != (err == nil) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
