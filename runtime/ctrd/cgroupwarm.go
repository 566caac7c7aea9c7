package ctrd

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// warmEvery is shorter than an RCU grace period, in which the kernel's lock stays
// cheap, on any machine.
const warmEvery = 5 * time.Millisecond

// cgroupWarmer makes runc's move of a process into its cgroup cheap: 0.05 ms
// instead of 12 on an idle machine, 80 on a busy one.
//
// Whoever writes a cgroup.procs takes a lock that all forks and exits of the machine
// take for reading (cgroup_threadgroup_rwsem). Its first writer waits for an RCU
// grace period, one that comes within the next such period does not
// (kernel/rcu/sync.c). So while containers are being made, one or many, we write
// our own ID to the cgroup that we are in, which changes nothing, from before runc
// runs until it has. Best effort: where it fails, a create is slower.
type cgroupWarmer struct {
	mu    sync.Mutex
	users int
	cool  context.CancelFunc // of what goes on while there are users
}

// use keeps the lock cheap until the returned function is called.
func (w *cgroupWarmer) use() (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users++; w.users == 1 {
		var ctx context.Context
		ctx, w.cool = context.WithCancel(context.Background())
		go keepCgroupsWarm(ctx)
	}
	return w.leave
}

func (w *cgroupWarmer) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.cool()
	}
}

func keepCgroupsWarm(ctx context.Context) {
	path, err := ownCgroupProcs()
	if err != nil {
		return
	}
	tick := time.NewTicker(warmEvery)
	defer tick.Stop()
	for os.WriteFile(path, strconv.AppendInt(nil, int64(os.Getpid()), 10), 0) == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ownCgroupProcs finds the cgroup.procs that lists this process, in any hierarchy.
func ownCgroupProcs() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for _, path := range cgroupProcs(mounts, cgroups) {
		if list, err := os.ReadFile(path); err == nil && lists(list, os.Getpid()) {
			return path, nil
		}
	}
	return "", os.ErrNotExist
}

// cgroupProcs derives, from mountinfo and the cgroup file of a process (proc(5),
// cgroups(7)), where its cgroup.procs should be.
func cgroupProcs(mountinfo, cgroup []byte) []string {
	var found []string
	for line := range strings.Lines(string(mountinfo)) {
		if !strings.Contains(line, " - cgroup") {
			continue // and there may be thousands
		}
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != "/" {
			continue // a part of a hierarchy is mounted: the paths would not fit
		}
		kind, super := fields[len(fields)-3], fields[len(fields)-1]
		for entry := range strings.Lines(string(cgroup)) {
			parts := strings.SplitN(strings.TrimSpace(entry), ":", 3)
			if len(parts) == 3 && mountsHierarchy(kind, super, parts[0], parts[1]) {
				found = append(found, filepath.Join(fields[4], parts[2], "cgroup.procs"))
			}
		}
	}
	return found
}

// mountsHierarchy says whether a mount of that type and with those options of its
// super block shows the hierarchy of an entry.
func mountsHierarchy(kind, super, hierarchy, controllers string) bool {
	switch kind {
	case "cgroup2":
		return hierarchy == "0"
	case "cgroup":
		return hierarchy != "0" && strings.Contains(","+super+",", ","+controllers+",")
	}
	return false
}

func lists(procs []byte, pid int) bool {
	s := bufio.NewScanner(bytes.NewReader(procs))
	for s.Scan() {
		if s.Text() == strconv.Itoa(pid) {
			return true
		}
	}
	return false
}
