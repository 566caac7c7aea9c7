package cgroups

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestFreezerStates(t *testing.T) {
	for _, tt := range []struct {
		host  func(*fakeHost) *fakeHost
		files map[string]string
		want  bool
	}{
		{func(f *fakeHost) *fakeHost { return f.v1(usual...) }, map[string]string{"freezer.state": "THAWED\n"}, false},
		{func(f *fakeHost) *fakeHost { return f.v1(usual...) }, map[string]string{"freezer.state": "FREEZING\n"}, false},
		{func(f *fakeHost) *fakeHost { return f.v1(usual...).hybrid() }, map[string]string{"freezer.state": "FROZEN\n"}, true},
		{func(f *fakeHost) *fakeHost { return f.v2("cpu memory pids") }, map[string]string{"cgroup.events": "populated 1\nfrozen 0\n"}, false},
		{func(f *fakeHost) *fakeHost { return f.v2("cpu memory pids") }, map[string]string{"cgroup.events": "populated 1\nfrozen 1\n"}, true},
	} {
		f := tt.host(newFakeHost(t))
		h := f.detect()
		if got, err := f.group(h, tt.files).Frozen(); got != tt.want || err != nil {
			t.Errorf("%s, %v: Frozen = %v, %v", h.Mode, tt.files, got, err)
		}
	}
}

// A group that does not freeze in time is let go on.
func TestFreezeGivesUp(t *testing.T) {
	f := newFakeHost(t).v2("cpu memory pids")
	g := f.group(f.detect(), map[string]string{"cgroup.freeze": "0", "cgroup.events": "frozen 0\n"})
	gaveUp := errors.New("gave up")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, gaveUp)
	defer cancel()
	if err := g.Freeze(ctx); !errors.Is(err, gaveUp) || sbxerr.Of(err) != sbxerr.Cgroup {
		t.Errorf("Freeze = %v; want the cause", err)
	}
	if got, err := readString(g.unified(), "cgroup.freeze"); got != "0" || err != nil {
		t.Errorf("cgroup.freeze is %q, %v; want it undone", got, err)
	}
}

func TestFreezeWithoutFreezer(t *testing.T) {
	f := newFakeHost(t).v1("memory", "pids", "cpu", "devices")
	g := f.group(f.detect(), nil)
	_, err := g.Frozen()
	for _, err := range []error{g.Freeze(t.Context()), g.Thaw(t.Context()), err} {
		if sbxerr.Of(err) != sbxerr.CgroupController {
			t.Errorf("%v; want %s", err, sbxerr.CgroupController)
		}
	}
	v2 := newFakeHost(t).v2("cpu memory pids")
	absent, err := Open(v2.detect(), "/caisson/one")
	if err != nil {
		t.Fatal(err)
	}
	if err := absent.Freeze(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Freeze of an absent group = %v", err)
	}
}

func TestLiveFreeze(t *testing.T) {
	g, sh := sandboxGroup(t, Limits{PIDs: 64, MemoryBytes: 128 << 20, MilliCPU: 1000})
	counter := t.TempDir() + "/count"
	sh.start("sh -c 'i=0; while :; do i=$((i+1)); echo $i > " + counter + "; done'")
	count := func() int {
		data, _ := os.ReadFile(counter)
		n, _ := strconv.Atoi(strings.TrimSpace(string(data)))
		return n
	}
	advances := func() bool {
		before := count()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		for wait := newPauses(); count() <= before; {
			if wait.next(ctx) != nil {
				return false
			}
		}
		return true
	}
	waitFor(t, "the counter to run", advances)
	for range 2 { // freezing and thawing twice is fine
		if err := g.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if frozen, err := g.Frozen(); !frozen || err != nil {
		t.Errorf("Frozen = %v, %v", frozen, err)
	}
	if advances() { // a write that was cut short may show once
		if advances() {
			t.Error("it runs on although it is frozen")
		}
	}
	for range 2 {
		if err := g.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if frozen, err := g.Frozen(); frozen || err != nil {
		t.Errorf("after Thaw: Frozen = %v, %v", frozen, err)
	}
	waitFor(t, "the counter to run again", advances)
	if err := errors.Join(g.Freeze(t.Context()), g.Kill(t.Context())); err != nil {
		t.Errorf("Kill of a frozen group = %v", err)
	}
}
