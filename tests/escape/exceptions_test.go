package escape

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// exception is an attempt whose control may fail as well, where something
// holds of this host that is found out in another way than by the attempt.
type exception struct {
	attempt string // name, or the beginning of names, which ends with a space or slash
	reason  string
	applies func(attempt) bool
}

func (e exception) covers(a attempt) bool {
	begins := strings.HasSuffix(e.attempt, " ") || strings.HasSuffix(e.attempt, "/")
	return a.Attempt == e.attempt || (begins && strings.HasPrefix(a.Attempt, e.attempt))
}

func always(attempt) bool { return true }

// exceptions to the rule that a control succeeds.
var exceptions = append(machineExceptions, []exception{
	{"write uid_map", "a kernel takes the map of a namespace once, and the host's own has always been written", always},
	{"write gid_map", "as uid_map", always},
	{"write to the text of a running program's file", "the kernel copies such a page before it is written, also unconfined; this shows that it is so on the sandbox's root", always},
	{"read ", "this kernel has no such file", func(a attempt) bool { return lacks(strings.TrimPrefix(a.Attempt, "read ")) }},
	{"read ", "this host's directory is empty", func(a attempt) bool { return isEmpty(strings.TrimPrefix(a.Attempt, "read ")) }},
	{"open /proc/sysrq-trigger for writing", "this kernel has no such file", func(attempt) bool { return lacks("/proc/sysrq-trigger") }},
	{"open a trigger of /proc/pressure/", "this kernel counts no pressure", func(attempt) bool { return lacks("/proc/pressure") }},
	{"open sysctl user/max_user_namespaces", "the host's root lacks CAP_SYS_RESOURCE", func(attempt) bool { return lacksSysResource() }},
	{"open sysctl ", "this kernel has no such sysctl", func(a attempt) bool { return lacks("/proc/sys/" + strings.TrimPrefix(a.Attempt, "open sysctl ")) }},
	{"/sys/", "this kernel has no such directory", func(a attempt) bool { return lacks(a.Attempt) }},
	{"ping socket", "the host's net.ipv4.ping_group_range leaves out root", func(attempt) bool { return hostFact("/proc/sys/net/ipv4/ping_group_range") > 0 }},
	{"path of the control group", "the tests themselves run in the root group", func(attempt) bool { return inRootGroup() }},
	{"oom_score_adj -1000", "the host's root lacks CAP_SYS_RESOURCE", func(attempt) bool { return lacksSysResource() }},
	{"setsockopt(IPT_SO_SET_REPLACE)", "no iptables of the old kind is loaded", func(a attempt) bool { return a.Outcome == "ENOPROTOOPT" }},
	{"open_tree_attr", "this kernel is older than Linux 6.15", olderThan(6, 15)},
	{"lsm_get_self_attr", "this kernel is older than Linux 6.8", olderThan(6, 8)},
	{"lsm_set_self_attr", "this kernel is older than Linux 6.8", olderThan(6, 8)},
	{"fchmodat2", "this kernel is older than Linux 6.6", olderThan(6, 6)},
	{"limit of core files", "the host's own limit is as low", within(unix.RLIMIT_CORE, 1)},
	{"limit of real-time priority", "the host's own limit is as low", within(unix.RLIMIT_RTPRIO, 0)},
	{"limit of open files", "the host's own limit is as low", within(unix.RLIMIT_NOFILE, 4096)},
	{"limit of locked memory", "the host's own limit is as low", within(unix.RLIMIT_MEMLOCK, 64<<10)},
	{"IPv4 routes", "the host has no IPv4 route", func(attempt) bool { return tableLines("/proc/net/route") <= 1 }},
	{"route to IPv4 (TEST-NET-1)", "the host has no default route", func(attempt) bool { return !hasDefaultRoute("/proc/net/route", 1) }},
	{"route to IPv6 (documentation)", "the host has no default route for IPv6", func(attempt) bool { return !hasDefaultRoute("/proc/net/ipv6_route", 0) }},
}...)

// no32 is the reason where a kernel has no entry for calls of 32 bits: the program that
// tries it fails, also unconfined.
const no32 = "this kernel has no entry for calls of 32 bits"

// lacks reports whether the path is absent on the host.
func lacks(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}

func isEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}

func inRootGroup() bool {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(strings.TrimSpace(line), ":/") {
			return false
		}
	}
	return true
}

func lacksSysResource() bool {
	held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	return err == nil && held == 0
}

// olderThan compares the kernel's version: the only word of a call's absence
// besides the attempt itself.
func olderThan(major, minor int) func(attempt) bool {
	return func(attempt) bool {
		var u unix.Utsname
		if unix.Uname(&u) != nil {
			return false
		}
		var a, b int
		if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); err != nil {
			return false
		}
		return a < major || a == major && b < minor
	}
}

func within(which int, most uint64) func(attempt) bool {
	return func(attempt) bool {
		var l unix.Rlimit
		return unix.Getrlimit(which, &l) == nil && l.Max <= most
	}
}

func tableLines(path string) int {
	data, _ := os.ReadFile(path)
	return strings.Count(string(data), "\n")
}

// hasDefaultRoute looks for a destination of zeros on an interface that is not
// the loopback.
func hasDefaultRoute(path string, column int) bool {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > column && strings.Trim(f[column], "0") == "" && !slices.Contains(f, "lo") {
			return true
		}
	}
	return false
}

// debugOpens are all the attempts that the profile debug lets reach the kernel.
var debugOpens = map[string]string{
	"ptrace(ATTACH, -1)":   "tracing is what the profile is for",
	"ptrace(SEIZE, -1)":    "tracing is what the profile is for",
	"ptrace(PEEKDATA, -1)": "tracing is what the profile is for",
	"process_vm_readv":     "debuggers read memory",
	"process_vm_writev":    "debuggers write memory",
}

// compatOpens are all the attempts that the profile compat lets reach the
// kernel.
var compatOpens = merged(machineCompatOpens, map[string]string{
	"chmod u+s":                "installers store the bit; the mounts are nosuid",
	"open with mode 04755":     "installers store the bit; the mounts are nosuid",
	"openat2":                  "newer C libraries",
	"fchmodat2":                "newer C libraries",
	"name_to_handle_at":        "asks for a handle; opening by handle stays refused",
	"adjtimex":                 "reading the clock's state",
	"clock_adjtime":            "reading the clock's state",
	"seccomp(SET_MODE_FILTER)": "filters of a program's own",
	"prctl(PR_SET_SECCOMP)":    "as seccomp",
	"PR_SET_MM":                "any prctl; this one needs a capability that is not held once its arguments are right",
})

// networkOpens are all the attempts that a network lets reach the kernel. What a
// command could change by them is tried in tests/network.
var networkOpens = map[string]string{
	"route to IPv4 (TEST-NET-1)":    "it leads to lo, where what is sent is refused and recorded",
	"route to IPv6 (documentation)": "as IPv4",
}

// rootOpens are all the attempts that the profile dev lets reach the kernel beyond compat: root
// of the sandbox's own user namespace, and a root on the sandbox's own disk.
var rootOpens = merged(compatOpens, map[string]string{
	"setuid 0":                               "it is root inside",
	"setgid 0":                               "as setuid",
	"setresuid 0":                            "as setuid",
	"setgroups 0":                            "as setuid",
	"group 0":                                "as setuid",
	"CapPrm of all threads":                  "the rights of setUpRights",
	"CapEff of all threads":                  "as CapPrm",
	"CapBnd of all threads":                  "as CapPrm",
	"rename in /etc":                         "the root is its own",
	"chmod in /etc":                          "the root is its own",
	"chmod of the root":                      "the root is its own",
	"overwrite a program":                    "the root is its own; this program runs",
	"writable mounts":                        "the root",
	"make a file in /":                       "the root is its own",
	"make a directory in /":                  "the root is its own",
	"make a file in /usr":                    "the root is its own",
	"make a directory in /usr":               "the root is its own",
	"make a file in /etc":                    "the root is its own",
	"make a directory in /etc":               "the root is its own",
	"make a file in /bin":                    "the root is its own",
	"make a directory in /bin":               "the root is its own",
	"write /etc/resolv.conf":                 "a file of its own root; TestRootInsideStaysInside",
	"write /etc/hosts":                       "as resolv.conf",
	"write /etc/hostname":                    "as resolv.conf",
	"look into PID 1's fd":                   "it lists numbers; none can be followed or opened",
	"open PID 1's comm for writing":          "the kernel takes a name from the process itself alone",
	"open PID 1's oom_score_adj for writing": "it can be raised, which endangers this sandbox alone; TestRootInsideStaysInside",
})

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// setUpRights are CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID and SETUID, of the sandbox's
// own user namespace.
const setUpRights = "00000000000000fb"

// holdsSetUpRights: root inside has these rights, and no others.
func holdsSetUpRights(t *testing.T, all []attempt) {
	t.Helper()
	for _, a := range all {
		set, is := strings.CutSuffix(a.Attempt, " of all threads")
		if is && strings.HasPrefix(set, "Cap") && a.Outcome != "["+setUpRights+"]" && a.Outcome != "[0000000000000000 "+setUpRights+"]" && a.Outcome != "[0000000000000000]" {
			t.Errorf("%s: %s", a.Attempt, a.Outcome)
		}
	}
}
