package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// volumeView is what volume ls and inspect tell.
type volumeView struct {
	Name   string
	Owner  uint32
	UsedBy []string `json:"used_by"`
}

func volumesOf(t *testing.T, run func(testing.TB, ...string) harness.Result) (list []string) {
	t.Helper()
	var all []volumeView
	run(t, "volume", "ls", "-o", "json").JSON(t, &all)
	for _, v := range all {
		list = append(list, fmt.Sprintf("%d+%s%v", v.Owner, v.Name, v.UsedBy))
	}
	return list
}

func sameVolumes(t *testing.T, run func(testing.TB, ...string) harness.Result, want ...string) {
	t.Helper()
	if got := volumesOf(t, run); !slices.Equal(got, want) {
		t.Errorf("volumes %v, want %v", got, want)
	}
}

// TestVolume: what a sandbox writes into a volume is there for the next one, whatever its
// user, until the volume is removed. One that is in use is not.
//
//caisson:kernel
func TestVolume(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "profiles: {web: {mounts: [{type: volume, source: cache, target: /cache}]}}\npools: [{size: 1}, {profile: web, size: 1}]\n")
	const at = "type=volume,src=cache,dst=/cache"
	d.Run(t, "run", "--mount", at, "--", "sh", "-c", "echo one > /cache/a && mkdir /cache/sub && chmod 700 /cache/sub")
	sameVolumes(t, d.Run, "0+cache[]")
	look := `cat /cache/a; touch /cache/sub/$0 && stat -c %u:%g /cache/sub/$0; grep " /cache " /proc/self/mountinfo | grep -c nosuid,nodev`
	if out := d.Run(t, "run", "-u", "7:8", "--mount", at, "--", "sh", "-c", look, "b").Stdout; out != "one\n7:8\n1\n" {
		t.Errorf("another user: %q", out)
	}
	if out := d.Run(t, "run", "--profile", "web", "--", "sh", "-c", look, "c").Stdout; out != "one\n1000:1000\n1\n" {
		t.Errorf("of a profile: %q", out)
	}
	if out := d.Run(t, "run", "--mount", at+",ro", "--", "sh", "-c", "cat /cache/a; touch /cache/x || echo refused").Stdout; out != "one\nrefused\n" {
		t.Errorf("read-only: %q", out)
	}
	data := filepath.Join(d.Root, "volumes", "0+cache", "data")
	if files, err := filepath.Glob(data + "/sub/*"); err != nil || len(files) != 2 {
		t.Errorf("on disk: %v, %v", files, err)
	}
	if info, err := os.Stat(filepath.Join(d.Root, "volumes")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of volumes: %v, %v", info, err)
	}
	box(t, d, "one", "--mount", at)
	box(t, d, "two", "--mount", at+",ro")
	d.Run(t, "exec", "one", "--", "sh", "-c", "echo two > /cache/a")
	if out := d.Run(t, "exec", "two", "--", "cat", "/cache/a").Stdout; out != "two\n" {
		t.Errorf("shared: %q", out)
	}
	if f := d.Refused(t, "SBX-232", "volume", "rm", "--json", "cache"); !strings.Contains(f.Error.Message, "one, two") {
		t.Errorf("refused with %q", f.Error.Message)
	}
	d.Kill(t)
	d.Launch(t)
	sameVolumes(t, d.Run, "0+cache[one two]")
	d.Refused(t, "SBX-232", "volume", "rm", "--json", "cache")
	d.Run(t, "stop", "--grace", "0s", "one")
	sameVolumes(t, d.Run, "0+cache[two]")
	d.Run(t, "rm", "--force", "one", "two")
	if out := d.Run(t, "volume", "rm", "cache").Stdout; out != "cache\n" {
		t.Errorf("removed %q", out)
	}
	sameVolumes(t, d.Run)
	if _, err := os.Lstat(data); err == nil {
		t.Error("its files stay")
	}
	d.Refused(t, "SBX-231", "volume", "inspect", "--json", "cache")
	d.Refused(t, "SBX-231", "volume", "rm", "--json", "cache")
}

// TestVolumeInThePool: a ready sandbox gets a volume, and it is in use from then on.
func TestVolumeInThePool(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "pools: [{profile: web, size: 1}]\nprofiles: {web: {mounts: [{type: volume, source: v, target: /v}]}}\n")
	awaitReady(t, d, 1)
	sameVolumes(t, d.Run) // a ready one has none yet
	hits := poolOf(t, d).Hits
	box(t, d, "s", "--profile", "web")
	if poolOf(t, d).Hits != hits+1 {
		t.Error("not from the pool")
	}
	d.Run(t, "exec", "s", "--", "touch", "/v/made")
	sameVolumes(t, d.Run, "0+v[s]")
	d.Refused(t, "SBX-232", "volume", "rm", "--json", "v")
	d.Run(t, "inspect", "--all", "s") // compares the live process with its spec
	d.Run(t, "rm", "--force", "s")
	d.Run(t, "volume", "rm", "v")
}

// TestVolumeOwners: each user has volumes of its own, and knows of no others. Root sees all.
func TestVolumeOwners(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "peers: [{uids: [54321, 54322], volumes: true}, {uids: [54323]}]\n")
	a, b, c := d.User(t, ann), d.User(t, bob), d.User(t, 54323)
	const at = "type=volume,src=cache,dst=/cache"
	for name, run := range map[string]func(testing.TB, ...string) harness.Result{"root": d.Run, "ann": a.Run, "bob": b.Run} {
		if out := run(t, "run", "--mount", at, "--", "sh", "-c", "ls /cache; echo $0 > /cache/mine; cat /cache/mine", name).Stdout; out != name+"\n" {
			t.Errorf("%s: %q", name, out)
		}
	}
	info, err := os.Stat(filepath.Join(d.Root, "volumes", "54321+cache", "data", "mine"))
	if err != nil || ownerOf(info) != ann {
		t.Errorf("on disk: %v, %v", info, err)
	}
	sameVolumes(t, a.Run, "54321+cache[]")
	sameVolumes(t, d.Run, "0+cache[]", "54321+cache[]", "54322+cache[]")
	a.Run(t, "volume", "inspect", "54321+cache")
	d.Run(t, "volume", "inspect", "54321+cache")
	for _, call := range [][]string{{"volume", "inspect"}, {"volume", "rm"}} {
		b.Refused(t, "SBX-231", append(call, "--json", "54321+cache")...)
		b.Refused(t, "SBX-231", append(call, "--json", "0+cache")...)
	}
	b.Refused(t, "SBX-101", "run", "--json", "--mount", "type=volume,src=54321+cache,dst=/cache", "--", "true")
	for _, call := range [][]string{{"volume", "ls"}, {"volume", "create", "x"}, {"volume", "rm", "x"}, {"volume", "prune"}, {"run", "--mount=" + at, "--", "true"}} {
		c.Refused(t, "SBX-805", append([]string{call[0], call[1], "--json"}, call[2:]...)...)
	}
	for _, bad := range []string{"", ".", "a/b", "-", "..", strings.Repeat("a", 129)} {
		d.Refused(t, "SBX-101", "volume", "create", "--json", "--", bad)
	}
	for name, user := range map[string]harness.User{"ann": a, "bob": b} {
		out := user.Run(t, "events", "--json", "--filter", "type=volume.created").Stdout
		if strings.Count(out, "volume.created") != 1 || !strings.Contains(out, `"volume":"cache"`) {
			t.Errorf("events of %s: %s", name, out)
		}
	}
	a.Run(t, "volume", "create", "empty")
	a.Run(t, "create", "--name", "s", "--mount", at)
	if out := a.Run(t, "volume", "prune", "--dry-run").Stdout; out != "empty\n" {
		t.Errorf("to prune: %q", out)
	}
	if out := a.Run(t, "volume", "prune").Stdout; out != "empty\n" {
		t.Errorf("pruned: %q", out)
	}
	sameVolumes(t, d.Run, "0+cache[]", "54321+cache[s]", "54322+cache[]")
	d.Run(t, "rm", "--force", "s")
	d.Run(t, "volume", "rm", "54321+cache")
	sameVolumes(t, a.Run)
}

// TestVolumeNested: a sandbox gives no volume to its children.
func TestVolumeNested(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	in := nestedBox(t, d, "outer")
	in.run(t, smallBox("child")...)
	in.refused(t, "SBX-805", smallBox("other", "--mount", "type=volume,src=v,dst=/v")...)
	in.refused(t, "SBX-805", "volume", "ls", "--json")
	in.refused(t, "SBX-805", "volume", "create", "--json", "v")
	sameVolumes(t, d.Run)
}

// TestVolumeIsRemovedWhole: files that a sandbox nests deeper than any path, and that
// nobody may read, go with the volume, also right after the sandbox ended.
func TestVolumeIsRemovedWhole(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	d.Run(t, "run", "--mount", "type=volume,src=v,dst=/v", "--", "sh", "-c",
		"cd /v; ln -s /etc l; mkfifo f; mkdir no; touch no/x; chmod 0 no; long=$(printf 'd/%.0s' $(seq 1000)); mkdir -p a/$long; for n in b c; do mkdir -p $n/$long && mv a $n/${long}a && mv $n a || exit 1; done")
	d.Run(t, "volume", "rm", "v")
	if left, err := os.ReadDir(filepath.Join(d.Root, "volumes")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Error(err)
	}
}

// TestVolumeIsNeverTakenAway: while a volume is removed again and again, each sandbox that
// mounts it keeps what it wrote as long as it lives.
func TestVolumeIsNeverTakenAway(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "pools: [{size: 2}]\n")
	var runs sync.WaitGroup
	over := make(chan struct{})
	for i := range 2 {
		runs.Go(func() {
			for n := range 15 {
				mark := fmt.Sprintf("%d-%d", i, n)
				r := d.Try("run", "--mount", "type=volume,src=v,dst=/v", "--", "sh", "-c", "echo $0 > /v/$0; sleep 0.05; cat /v/$0", mark)
				if r.Code != 0 || r.Stdout != mark+"\n" {
					t.Errorf("%s: code %d, %q%s", mark, r.Code, r.Stdout, r.Stderr)
				}
			}
		})
	}
	go func() { runs.Wait(); close(over) }()
	removed := 0
	for done := false; !done; {
		select {
		case <-over:
			done = true
		default:
		}
		switch r := d.Try("volume", "rm", "--json", "v"); {
		case r.Code == 0:
			removed++
		case !strings.Contains(r.Stdout, "SBX-231") && !strings.Contains(r.Stdout, "SBX-232"):
			t.Errorf("rm: %s", r.Stdout)
		}
	}
	if removed == 0 {
		t.Error("it was never removed: nothing is shown")
	}
	if left, err := os.ReadDir(filepath.Join(d.Root, "volumes")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestVolumeSize: a volume with a size takes no more than that, where one without takes the same.
// The result and an event name it. It outlives the daemon, and nothing of it stays after rm.
func TestVolumeSize(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.Start(t)
	d.Run(t, "volume", "create", "--size", "16M,1000", "small")
	d.Run(t, "volume", "create", "wide")
	d.Run(t, "create", "--name", "b", "--mount", "type=volume,src=small,dst=/small", "--mount", "type=volume,src=wide,dst=/wide")
	const fill = "dd if=/dev/zero of=big bs=1M count=20"
	if r := d.Try("exec", "b", "--", "sh", "-c", "cd /wide && "+fill); r.Code != 0 {
		t.Fatalf("without a size: %s", r.Stderr)
	}
	r := d.Try("exec", "b", "--", "sh", "-c", "cd /small && echo kept > f; "+fill)
	if r.Code != 1 || !strings.Contains(r.Stderr, "No space left on device") || !strings.Contains(r.Stderr, "the volume small was full") {
		t.Errorf("with a size: %d, %s", r.Code, r.Stderr)
	}
	if out := d.Try("exec", "--json", "b", "--", "touch", "/small").Stdout; strings.Contains(out, `"volume"`) {
		t.Errorf("of a command that does not fail: %s", out)
	}
	if out := d.Try("exec", "--json", "b", "--", "false").Stdout; !strings.Contains(out, `"volume"`) || !strings.Contains(strings.Join(strings.Fields(out), ""), `"full_volumes":["small"]`) {
		t.Errorf("the result: %s", out)
	}
	if out := d.Run(t, "events", "--since", "1h", "--filter", "type=limit.hit", "-o", "json").Stdout; !strings.Contains(out, `"volume":"small"`) {
		t.Errorf("events: %s", out)
	}
	d.Kill(t)
	d.Launch(t)
	if out := d.Run(t, "exec", "b", "--", "sh", "-c", "cat /small/f; rm /small/big; touch /small/g && echo more").Stdout; out != "kept\nmore\n" {
		t.Errorf("after a restart: %q", out)
	}
	d.Refused(t, "SBX-232", "volume", "rm", "--json", "small")
	d.Run(t, "rm", "--force", "b")
	d.Stop(t)
	// The kernel frees a loop device some time after the last unmount.
	await(t, "the end of the loop devices of a daemon that has stopped", func() bool { return loopsOf(t, d.Root) == "" })
	d.Launch(t)
	if out := d.Run(t, "run", "--mount", "type=volume,src=small,dst=/small", "--", "cat", "/small/f").Stdout; out != "kept\n" {
		t.Errorf("after a stop: %q", out)
	}
	for size, code := range map[string]string{"0": "SBX-102", "1M": "SBX-102", "2T": "SBX-102", "x": "SBX-102", "16M,9": "SBX-102", "1T": "SBX-234"} {
		d.Refused(t, code, "volume", "create", "--json", "--size", size, "other")
	}
	d.Run(t, "volume", "create", "--size", "16M,1000", "small")
	if f := d.Refused(t, "SBX-243", "volume", "create", "--json", "--size", "17M", "small"); !strings.Contains(f.Error.Message, "16M and 1000 inodes, and not 17M") {
		t.Errorf("refused with %q", f.Error.Message)
	}
	if f := d.Refused(t, "SBX-243", "volume", "create", "--json", "--size", "16M", "wide"); !strings.Contains(f.Error.Message, "no size") {
		t.Errorf("refused with %q", f.Error.Message)
	}
	d.Run(t, "volume", "rm", "small", "wide")
	wantNoDisks(t, d)
}

// TestSizeOfCaches: a cache has the size of the configuration. What does not fit is not merged in
// part, and an event says so.
func TestSizeOfCaches(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {volume_size: 32M}\n"+caches)
	d.Run(t, "run", "--profile", "fills", "--", "sh", "-c", "echo one > /mine/a")
	d.Run(t, "run", "--profile", "fills", "--disk", "128M", "--", "sh", "-c", "cd /mine && echo two > a && echo new > b && dd if=/dev/urandom of=c bs=1M count=20 && cp c d")
	if out := d.Run(t, "run", "--profile", "reads", "--", "sh", "-c", "cd /mine; ls -A; cat a").Stdout; out != "a\none\n" {
		t.Errorf("the cache has %q", out)
	}
	if out := d.Run(t, "events", "--since", "1h", "--filter", "type=volume.failed", "-o", "json").Stdout; strings.Count(out, `"caisson-cache-mine"`) != 1 {
		t.Errorf("events: %s", out)
	}
	if out := d.Run(t, "volume", "inspect", "caisson-cache-npm").Stdout; !strings.Contains(out, "33554432") {
		t.Errorf("another cache: %s", out)
	}
	d.Run(t, "volume", "prune")
	wantNoDisks(t, d)
}

// TestDiskQuota: the disks of a user's sandboxes and its volumes with a size count together,
// also after a restart. Root and others are not bounded by it.
func TestDiskQuota(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "peers: [{uids: [54321, 54322], volumes: true, quota: {disk: 96M}, limits: {disk: 96M}}]\n")
	a := d.User(t, ann)
	a.Run(t, "create", "--name", "s", "--disk", "48M")
	a.Run(t, "volume", "create", "--size", "32M", "v")
	refused := func(code string, call ...string) {
		t.Helper()
		f := a.Refused(t, code, call...)
		if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, "above the 16M left of the quota") || !strings.Contains(all, "80M of 96M are in use") || !strings.Contains(f.Error.Remedy, "volumes that have a size") {
			t.Errorf("%q: %s (%s)", call, all, f.Error.Remedy)
		}
	}
	for range 2 {
		refused("SBX-113", "volume", "create", "--json", "--size", "17M", "w")
		refused("SBX-113", "run", "--json", "--disk", "17M", "--", "true")
		a.Refused(t, "SBX-231", "volume", "inspect", "--json", "w")
		d.Kill(t)
		d.Launch(t)
	}
	a.Refused(t, "SBX-805", "volume", "create", "--json", "--size", "97M", "w")
	a.Run(t, "volume", "create", "--size", "16M", "w")
	d.User(t, bob).Run(t, "volume", "create", "--size", "96M", "v")
	d.Run(t, "volume", "create", "--size", "128M", "v")
	a.Run(t, "volume", "rm", "v", "w")
	a.Run(t, "run", "--disk", "48M", "--", "true")
	a.Run(t, "rm", "--force", "s")
	a.Run(t, "volume", "create", "--size", "96M", "v")
	for _, of := range []string{"54321+v", "54322+v", "0+v"} {
		d.Run(t, "volume", "rm", of)
	}
	wantNoDisks(t, d)
}
