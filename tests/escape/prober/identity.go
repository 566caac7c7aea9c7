package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ambient is the capability that controls are given in their ambient set.
const ambient = unix.CAP_SYS_CHROOT

var refused = []string{"EPERM"}

// identityProbes: who one is, and becoming somebody else.
func identityProbes() []probe {
	out := []probe{
		{id: "P002", name: "no_new_privs of all threads", try: statusOfAll("NoNewPrivs"), want: []string{"[1]"}},
		{id: "P003", name: "seccomp mode of all threads", try: statusOfAll("Seccomp"), want: []string{"[2]"}},
		{id: "P003", name: "seccomp filters of all threads", try: filtersOfAll, want: []string{"at least 1"}},
		{id: "P004", name: "run a set-user-id program", try: runSetID, want: []string{"unchanged"}},
		{id: "P004", name: "store a file capability", try: storeFileCapability, want: refused},
		{id: "P004", name: "chmod u+s", try: storeSetID(chmodSetID), want: refused},
		{id: "P004", name: "open with mode 04755", try: storeSetID(createSetID), want: refused},
		{id: "P004", name: "openat2", try: func() string { return raw(unix.SYS_OPENAT2, badFD, 0, 0, 0) }, want: []string{"ENOSYS"}},
		{id: "P004", name: "fchmodat2", try: func() string { return raw(sysFchmodat2, badFD, 0, 0, badFD) }, want: []string{"ENOSYS"}},
		{id: "P005", name: "setuid 0", try: func() string { return raw(unix.SYS_SETUID, 0) }, want: refused},
		{id: "P005", name: "setgid 0", try: func() string { return raw(unix.SYS_SETGID, 0) }, want: refused},
		{id: "P005", name: "setresuid 0", try: func() string { return raw(unix.SYS_SETRESUID, 0, 0, 0) }, want: refused},
		{id: "P005", name: "setgroups 0", try: setGroups, want: refused},
		{id: "P005", name: "group 0", try: groupZero, want: []string{"not a member"}},
		{id: "P010", name: "map of user ids", try: mapOf("/proc/self/uid_map"), want: []string{"private"}},
		{id: "P010", name: "map of group ids", try: mapOf("/proc/self/gid_map"), want: []string{"private"}},
		{id: "P010", name: "write uid_map", try: writeMap("/proc/self/uid_map"), want: []string{"EPERM", "EACCES"}},
		{id: "P010", name: "write gid_map", try: writeMap("/proc/self/gid_map"), want: []string{"EPERM", "EACCES"}},
		{id: "P010", name: "write setgroups", try: func() string { return write("/proc/self/setgroups", "allow") }, want: []string{"EPERM", "EACCES"}},
		{id: "P013", name: "capset", try: capset, want: refused},
		{id: "P013", name: "raise an ambient capability", try: func() string { return raw(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, ambient) }, want: refused},
		{id: "P013", name: "drop from the bounding set", try: func() string { return raw(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, ambient) }, want: refused},
		{id: "P013", name: "set securebits", try: func() string { return raw(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, 0) }, want: refused},
		{id: "P013", name: "PR_SET_MM", try: func() string { return raw(unix.SYS_PRCTL, unix.PR_SET_MM, 99, 0, 0, 1) }, want: refused},
		{id: "P016", name: "keyctl", try: func() string { return raw(unix.SYS_KEYCTL, badFD) }, want: refused},
		{id: "P016", name: "add_key", try: func() string { return raw(unix.SYS_ADD_KEY) }, want: refused},
		{id: "P016", name: "request_key", try: func() string { return raw(unix.SYS_REQUEST_KEY) }, want: refused},
		{id: "P077", name: "limit of core files", try: rlimit(unix.RLIMIT_CORE, 1), want: []string{"bounded"}},
		{id: "P128", name: "limit of real-time priority", try: rlimit(unix.RLIMIT_RTPRIO, 0), want: []string{"bounded"}},
		{id: "P128", name: "limit of message queues", try: rlimit(unix.RLIMIT_MSGQUEUE, 0), want: []string{"bounded"}},
		{id: "P128", name: "limit of locked memory", try: rlimit(unix.RLIMIT_MEMLOCK, 64<<10), want: []string{"bounded"}},
		{id: "P128", name: "limit of pending signals", try: rlimit(unix.RLIMIT_SIGPENDING, 1024), want: []string{"bounded"}},
		{id: "P128", name: "limit of open files", try: rlimit(unix.RLIMIT_NOFILE, 4096), want: []string{"bounded"}},
		{id: "P128", name: "set PID 1's limit of open files", try: limitInit, want: refused},
		{id: "P040", name: "nice -20", try: func() string { return raw(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, negative(20)) }, want: []string{"EACCES", "EPERM"}},
		{id: "P040", name: "real-time scheduling", try: func() string { return scheduler(1) }, want: refused},
		{id: "P040", name: "round-robin scheduling", try: func() string { return scheduler(2) }, want: refused},
		{id: "P040", name: "real-time i/o", try: func() string { return raw(unix.SYS_IOPRIO_SET, 1, 0, 1<<13) }, want: refused},
		{id: "P128", name: "oom_score_adj -1000", try: func() string { return write("/proc/self/oom_score_adj", "-1000") }, want: []string{"EACCES", "EPERM"}},
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		out = append(out, probe{id: "P001", name: set + " of all threads", try: statusOfAll(set), want: []string{"[0000000000000000]"}})
	}
	return out
}

// badFD is no descriptor, no process and no flag that anything knows.
const badFD = ^uintptr(0)

func negative(n int) uintptr { return uintptr(-n) }

// statusOfAll collects the values that a field of /proc/…/status has among all
// threads that can be seen, PID 1's included.
func statusOfAll(field string) func() string {
	return func() string {
		files, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/status")
		var values []string
		for _, f := range files {
			for l := range strings.Lines(readText(f)) {
				if v, found := strings.CutPrefix(l, field+":"); found && !slices.Contains(values, strings.TrimSpace(v)) {
					values = append(values, strings.TrimSpace(v))
				}
			}
		}
		return list(values)
	}
}

func filtersOfAll() string {
	if values := statusOfAll("Seccomp_filters")(); strings.Contains(" "+strings.Trim(values, "[]")+" ", " 0 ") || values == none {
		return values
	}
	return "at least 1"
}

// runSetID runs a copy of this program that was imported, or stored, with the
// set-user-id bit and belongs to root. A control does so as nobody.
func runSetID() string {
	cmd := exec.Command(around.suid, "euid")
	own := os.Geteuid()
	if own == 0 {
		own = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.Output()
	switch got := strings.TrimSpace(string(out)); {
	case err != nil:
		return outcome(err)
	case got == strconv.Itoa(own):
		return "unchanged"
	default:
		return "euid " + got
	}
}

// scratchFile makes an empty file and gives it to use.
func scratchFile(use func(path string) error) string {
	f, err := os.CreateTemp("/tmp", "prober-")
	if err != nil {
		return "no scratch file: " + outcome(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	return outcome(use(f.Name()))
}

// storeFileCapability writes an empty set of the second revision
// (linux/capability.h, VFS_CAP_REVISION_2).
func storeFileCapability() string {
	return scratchFile(func(path string) error {
		empty := make([]byte, 20)
		empty[3] = 2
		return unix.Setxattr(path, "security.capability", empty, 0)
	})
}

func storeSetID(store func(path string) error) func() string {
	return func() string { return scratchFile(store) }
}

func chmodSetID(path string) error { return unix.Fchmodat(unix.AT_FDCWD, path, 0o4755, 0) }

func createSetID(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_EXCL|unix.O_CLOEXEC, unix.S_ISUID|0o755)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func setGroups() string {
	groups := []uint32{0}
	return raw(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&groups[0])))
}

func groupZero() string {
	groups, err := os.Getgroups()
	if err != nil {
		return outcome(err)
	}
	if slices.Contains(append(groups, os.Getgid(), os.Getegid()), 0) {
		return "a member"
	}
	return "not a member"
}

// mapOf says whether the ids are those of a block of their own.
func mapOf(path string) func() string {
	return func() string {
		var inside, host, size uint64
		if _, err := fmt.Sscan(readText(path), &inside, &host, &size); err != nil {
			return err.Error()
		}
		if inside == 0 && host >= 1<<16 && size == 1<<16 {
			return "private"
		}
		return fmt.Sprintf("%d is %d of the host", inside, host)
	}
}

// writeMap writes a map in a child's new user namespace where that can be
// made, as a kernel takes a map only once.
func writeMap(path string) func() string {
	return func() string { return write(path, "0 0 1\n") }
}

func write(path, text string) string {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return outcome(err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return outcome(err)
}

// capset asks for one capability in all three sets of this thread.
func capset() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	one := unix.CapUserData{Effective: 1 << ambient, Permitted: 1 << ambient, Inheritable: 1 << ambient}
	data := [2]unix.CapUserData{one}
	return outcome(unix.Capset(&header, &data[0]))
}

// rlimit says whether neither limit is above max.
func rlimit(which int, most uint64) func() string {
	return func() string {
		var l unix.Rlimit
		if err := unix.Getrlimit(which, &l); err != nil {
			return outcome(err)
		}
		if l.Cur <= most && l.Max <= most {
			return "bounded"
		}
		return fmt.Sprintf("%d:%d", l.Cur, l.Max)
	}
}

// limitInit sets a limit of PID 1 to what it is: that one may is enough.
func limitInit() string {
	var have unix.Rlimit
	for l := range strings.Lines(readText(ofInit("limits"))) {
		if values, found := strings.CutPrefix(l, "Max open files"); found {
			_, _ = fmt.Sscan(values, &have.Cur, &have.Max)
		}
	}
	if have.Cur == 0 {
		return "not told"
	}
	return outcome(unix.Prlimit(around.initPID, unix.RLIMIT_NOFILE, &have, nil))
}

func scheduler(policy uintptr) string {
	priority := int32(1)
	return raw(unix.SYS_SCHED_SETSCHEDULER, 0, policy, uintptr(unsafe.Pointer(&priority)))
}
