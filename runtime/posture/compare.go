package posture

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// none is how an empty set shows.
const none = "none"

// perThread compares one value of every thread. Threads that differ show all
// their values.
func perThread(w want, name, declared string, value func(thread) string) Result {
	return threadsHave(w.live.threads, name, declared, value)
}

func threadsHave(threads []thread, name, declared string, value func(thread) string) Result {
	var values []string
	for _, t := range threads {
		if v := value(t); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return equal(name, declared, strings.Join(values, " | "))
}

func compareCredentials(w want) []Result {
	user := w.Spec.Process.User
	uid, gid := hostID(w.Spec.Linux.UIDMappings, user.UID), hostID(w.Spec.Linux.GIDMappings, user.GID)
	var groups []string
	for _, g := range slices.Sorted(slices.Values(user.AdditionalGids)) {
		groups = append(groups, hostID(w.Spec.Linux.GIDMappings, g))
	}
	statusField := func(key string) func(thread) string { return func(t thread) string { return t.fields[key] } }
	return append(compareCapabilities(w),
		perThread(w, "no_new_privileges", declaredFlag(w.Spec.Process.NoNewPrivileges), statusField("NoNewPrivs")),
		perThread(w, "uid", list([]string{uid, uid, uid, uid}), statusField("Uid")), // real, effective, saved, file system
		perThread(w, "gid", list([]string{gid, gid, gid, gid}), statusField("Gid")),
		perThread(w, "groups", list(groups), statusField("Groups")),
	)
}

func declaredFlag(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

// hostID maps an id of the sandbox. An unmapped id gets a text that equals no id.
func hostID(mappings []specs.LinuxIDMapping, id uint32) string {
	for _, m := range mappings {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return strconv.FormatUint(uint64(m.HostID)+uint64(id-m.ContainerID), 10)
		}
	}
	return fmt.Sprintf("unmapped %d", id)
}

func compareCapabilities(w want) []Result {
	declared := w.Spec.Process.Capabilities
	if declared == nil {
		declared = &specs.LinuxCapabilities{}
	}
	var out []Result
	for _, set := range []struct {
		name, field string
		declared    []string
	}{
		{"bounding", "CapBnd", declared.Bounding},
		{"effective", "CapEff", declared.Effective},
		{"inheritable", "CapInh", declared.Inheritable},
		{"permitted", "CapPrm", declared.Permitted},
		{"ambient", "CapAmb", declared.Ambient},
	} {
		out = append(out, perThread(w, "capabilities."+set.name, orNone(capabilityMask(set.declared)), func(t thread) string {
			return orNone(strings.TrimLeft(t.fields[set.field], "0"))
		}))
	}
	return out
}

// capabilityNumbers are bits of the sets in /proc/PID/status, of those that a sandbox can
// have (capability.h).
var capabilityNumbers = map[string]uint{
	"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_FOWNER": unix.CAP_FOWNER, "CAP_FSETID": unix.CAP_FSETID,
	"CAP_KILL": unix.CAP_KILL, "CAP_SETGID": unix.CAP_SETGID, "CAP_SETUID": unix.CAP_SETUID,
}

// capabilityMask renders a set as the kernel does, without leading zeros. A set with any
// other capability gets a text that equals no mask.
func capabilityMask(set []string) string {
	mask := uint64(0)
	for _, name := range set {
		n, ok := capabilityNumbers[name]
		if !ok {
			return list(set)
		}
		mask |= 1 << n
	}
	if mask == 0 {
		return ""
	}
	return strconv.FormatUint(mask, 16)
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// compareFilter: mode 2 is a filter, and none would be one that was taken for another
// process. What those of PID 1 decide is compared apart, see checkFilters.
func compareFilter(w want) []Result {
	mode := perThread(w, "seccomp", "2", func(t thread) string { return t.fields["Seccomp"] })
	filters := perThread(w, "seccomp.filters", "at least 1", func(t thread) string {
		if n, err := strconv.Atoi(t.fields["Seccomp_filters"]); err == nil && n >= 1 {
			return "at least 1"
		}
		return t.fields["Seccomp_filters"]
	})
	return []Result{mode, filters}
}

// compareNamespaces: a declared namespace is none of the daemon's, an
// undeclared one is the daemon's.
func compareNamespaces(w want) []Result {
	var out []Result
	for _, n := range namespaceLinks {
		declared := slices.ContainsFunc(w.Spec.Linux.Namespaces, func(d specs.LinuxNamespace) bool { return d.Type == n.kind })
		own, is := w.host.namespaces[n.link], w.live.namespaces[n.link]
		r := Result{Name: "namespace." + n.link, Declared: own, Live: is, OK: is == own}
		path, byPath := w.host.joined[n.kind]
		switch {
		case byPath:
			r.Declared, r.OK = path, is == path && is != own
		case declared:
			r.Declared, r.OK = "not "+own, is != own && is != ""
		}
		out = append(out, r)
	}
	return out
}

func compareIDMaps(w want) []Result {
	return []Result{
		equal("uid_map", declaredMap(w.Spec.Linux.UIDMappings), liveMap(w.live.uidMap)),
		equal("gid_map", declaredMap(w.Spec.Linux.GIDMappings), liveMap(w.live.gidMap)),
		// "deny" would mean that somebody without privilege wrote the map.
		equal("setgroups", "allow", w.live.setgroups),
	}
}

func declaredMap(mappings []specs.LinuxIDMapping) string {
	var out []string
	for _, m := range mappings {
		out = append(out, fmt.Sprintf("%d %d %d", m.ContainerID, m.HostID, m.Size))
	}
	return strings.Join(out, "; ")
}

func liveMap(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(out, "; ")
}

// compareCgroups: the process is in its group in every hierarchy that has a
// controller. Where v1 has the controllers, runtimes may leave it in the
// daemon's group on v2, and they do not know named hierarchies.
func compareCgroups(w want) []Result {
	declared := w.Spec.Linux.CgroupsPath
	if len(w.live.cgroups) == 0 {
		return []Result{equal("cgroup", declared, none)}
	}
	hybrid := slices.ContainsFunc(w.live.cgroups, func(c cgroup) bool { return hasController(c) })
	var out []Result
	for _, c := range w.live.cgroups {
		r := equal("cgroup."+c.name(), declared, c.path)
		r.OK = r.OK || w.isLeaf(c, hybrid)
		if hybrid && !hasController(c) {
			r.OK = r.OK || c.controllers != "" || c.path == w.host.unified
		}
		out = append(out, r)
	}
	return out
}

// initLeaf is where PID 1 lives on v2, right below its group: one that hands
// controllers down to groups of commands holds no process itself (cgroups(7)).
const initLeaf = "init"

// isLeaf: the limits of a group hold for those below it too. PID 1 may be in the leaf
// that is meant for it, a command in one of its own.
func (w want) isLeaf(c cgroup, hybrid bool) bool {
	leaf, below := strings.CutPrefix(c.path, w.Spec.Linux.CgroupsPath+"/")
	if !below || leaf == "" || strings.Contains(leaf, "/") {
		return false
	}
	return w.Command || !hybrid && leaf == initLeaf
}

func (c cgroup) name() string {
	if c.controllers == "" {
		return "unified"
	}
	return c.controllers
}

func hasController(c cgroup) bool {
	return c.controllers != "" && !strings.HasPrefix(c.controllers, "name=")
}

// compareRoot: the paths alone prove nothing, since a directory of the host may
// have the same (CVE-2024-21626); the mounts do.
func compareRoot(w want) []Result {
	out := []Result{comparePlace(w, "root", "/", w.live.root)}
	if !w.Command {
		out = append(out, comparePlace(w, "cwd", w.Spec.Process.Cwd, w.live.cwd))
	}
	return out
}

func comparePlace(w want, name, declared string, p place) Result {
	r := equal(name, declared, p.path)
	if id, ok := mountOf(w.live.mounts, declared); !ok || id != p.mount {
		r.OK = false
		r.Live += fmt.Sprintf(" on mount %d instead of %d", p.mount, id)
	}
	return r
}

// mountOf returns the mount on which a path of the sandbox lies.
func mountOf(mounts []mount, p string) (id uint64, ok bool) {
	longest := -1
	for _, m := range mounts {
		if within(p, m.point) && len(m.point) >= longest {
			longest, id, ok = len(m.point), m.id, true
		}
	}
	return id, ok
}

func compareProgram(w want) []Result {
	if len(w.Spec.Process.Args) == 0 {
		return []Result{equal("program", none, w.live.program.path)}
	}
	return []Result{comparePlace(w, "program", path.Clean(w.Spec.Process.Args[0]), w.live.program)}
}

// compareLimits: PID 1 is a Go program, and Go raises the soft limit of
// descriptors up to the hard one at its start. A command may have lower ones.
func compareLimits(w want) []Result {
	var out []Result
	for _, d := range w.Spec.Process.Rlimits {
		i := slices.IndexFunc(w.live.limits, func(l specs.POSIXRlimit) bool { return l.Type == d.Type })
		if i < 0 {
			out = append(out, equal("rlimit."+d.Type, limitText(d), "unknown to the kernel"))
			continue
		}
		l := w.live.limits[i]
		r := equal("rlimit."+d.Type, limitText(d), limitText(l))
		switch {
		case w.Command:
			r.OK = l.Hard <= d.Hard && l.Soft <= l.Hard
		case d.Type == "RLIMIT_NOFILE":
			r.OK = l.Hard == d.Hard && l.Soft <= l.Hard
			r.Declared = fmt.Sprintf("up to %d:%d", d.Hard, d.Hard)
		}
		out = append(out, r)
	}
	return out
}

func limitText(l specs.POSIXRlimit) string { return fmt.Sprintf("%d:%d", l.Soft, l.Hard) }

func compareOOM(w want) []Result {
	declared := none
	if adj := w.Spec.Process.OOMScoreAdj; adj != nil {
		declared = strconv.Itoa(*adj)
	}
	r := equal("oom_score_adj", declared, w.live.oom)
	if w.Command { // PID 1 raises it, and a command may raise its own
		have, err := strconv.Atoi(w.live.oom)
		least, errDeclared := strconv.Atoi(declared)
		r.OK = err == nil && errDeclared == nil && have >= least
	}
	return []Result{r}
}

// compareLabel compares the label of a security module where one is declared.
// Where none is, there is nothing to compare with.
func compareLabel(w want) []Result {
	switch p := w.Spec.Process; {
	case p.ApparmorProfile != "":
		return []Result{equal("label", p.ApparmorProfile+" (enforce)", w.live.label)}
	case p.SelinuxLabel != "":
		return []Result{equal("label", p.SelinuxLabel, w.live.label)}
	}
	return nil
}

func compareUmask(w want) []Result {
	declared := none
	if u := w.Spec.Process.User.Umask; u != nil {
		declared = fmt.Sprintf("%04o", *u)
	}
	for _, t := range w.live.threads {
		if t.leader() {
			return []Result{equal("umask", declared, t.fields["Umask"])}
		}
	}
	return []Result{equal("umask", declared, none)}
}

// compareEnv shows names only: results are logged, and a value that leaked from the host
// may be a secret.
func compareEnv(w want) []Result {
	declared, is := environment(w.Spec.Process.Env), environment(strings.Split(strings.TrimSuffix(w.live.env, "\x00"), "\x00"))
	r := Result{Name: "environment", Declared: names(declared), Live: names(is), OK: maps.Equal(declared, is)}
	if !r.OK && r.Declared == r.Live {
		r.Live += " with other values"
	}
	return []Result{r}
}

func environment(entries []string) map[string]string {
	out := map[string]string{}
	for _, e := range entries {
		name, value, _ := strings.Cut(e, "=")
		out[name] = value
	}
	return out
}

func names(env map[string]string) string { return list(slices.Sorted(maps.Keys(env))) }
