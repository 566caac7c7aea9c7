package posture

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// thread is /proc/<pid>/task/<tid>/status, as far as it is compared.
type thread struct {
	fields map[string]string
}

// statusFields are the fields that every kernel since 5.9 shows; proc(5).
var statusFields = []string{
	"State", "Tgid", "Pid", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters",
}

// parseStatus refuses a text that lacks a field or has one twice: the name of
// the process is in it, and the process chooses that.
func parseStatus(text string) (thread, error) {
	t := thread{make(map[string]string, 64)}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			return t, fmt.Errorf("status has no field in %q", line)
		}
		if _, twice := t.fields[key]; twice {
			return t, fmt.Errorf("status has field %q twice", key)
		}
		t.fields[key] = strings.Join(strings.Fields(value), " ")
	}
	for _, key := range statusFields {
		if _, ok := t.fields[key]; !ok {
			return t, fmt.Errorf("status lacks field %q", key)
		}
	}
	return t, nil
}

func (t thread) leader() bool { return t.fields["Pid"] == t.fields["Tgid"] }

func (t thread) ended() bool {
	return strings.HasPrefix(t.fields["State"], "Z") || strings.HasPrefix(t.fields["State"], "X")
}

// cgroup is one line of /proc/<pid>/cgroup (cgroups(7)).
type cgroup struct {
	controllers string // "" on v2, "name=…" for a hierarchy without controllers
	path        string
}

func parseCgroups(text string) ([]cgroup, error) {
	var out []cgroup
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("cgroup line %q has no three parts", line)
		}
		out = append(out, cgroup{parts[1], parts[2]})
	}
	return out, nil
}

// mount is one line of mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	id       uint64
	device   string // major:minor of the file system
	root     string // the directory of the file system that is mounted
	point    string
	options  []string
	optional []string // propagation: "shared:1", "master:2"
	fstype   string
	super    []string // options of the file system
}

func parseMounts(text string) ([]mount, error) {
	out := make([]mount, 0, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		m, err := parseMount(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("mountinfo line %q: %w", line, err)
		}
		out = append(out, m)
	}
	return out, nil
}

func parseMount(line string) (mount, error) {
	f := strings.Split(line, " ")
	dash := slices.Index(f, "-")
	if dash < 6 || len(f) != dash+4 {
		return mount{}, fmt.Errorf("%d fields, separator at %d", len(f), dash)
	}
	id, err := strconv.ParseUint(f[0], 10, 64)
	if err != nil {
		return mount{}, err
	}
	return mount{
		id: id, device: f[2], root: unescape(f[3]), point: unescape(f[4]),
		options: strings.Split(f[5], ","), optional: f[6:dash], fstype: f[dash+1], super: strings.Split(f[dash+3], ","),
	}, nil
}

// parsePlaces reads of each mount only its id, where it is and what is mounted there:
// of the daemon's own there are several for each sandbox.
func parsePlaces(text string) ([]mount, error) {
	out := make([]mount, 0, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		var f [5]string // id, parent, device, root, mount point
		rest, more := line, true
		for i := range f {
			if !more {
				return nil, fmt.Errorf("mountinfo line %q: %d fields", line, i)
			}
			f[i], rest, more = strings.Cut(rest, " ")
		}
		id, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("mountinfo line %q: %w", line, err)
		}
		out = append(out, mount{id: id, device: f[2], root: unescape(f[3]), point: unescape(f[4])})
	}
	return out, nil
}

// unescape undoes the kernel's octal escapes of blanks and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// source says what part of which file system is mounted.
type source struct {
	device, root string
}

func (m mount) source() source { return source{m.device, m.root} }

// sourceOf finds where the absolute path p of the namespace with mounts lies:
// in the last mount that covers it, since later mounts lie on top.
func sourceOf(mounts []mount, p string) (source, bool) {
	best := -1
	for i, m := range mounts {
		if within(p, m.point) && (best < 0 || len(m.point) >= len(mounts[best].point)) {
			best = i
		}
	}
	if best < 0 {
		return source{}, false
	}
	m := mounts[best]
	if m.point == p { // as the kernel shows it: cleaning would change "/x//deleted", a directory that was deleted
		return source{m.device, m.root}, true
	}
	return source{m.device, path.Join(m.root, strings.TrimPrefix(p, m.point))}, true
}

// within reports whether p is dir or inside it.
func within(p, dir string) bool {
	rest, ok := strings.CutPrefix(p, dir)
	return ok && (rest == "" || rest[0] == '/') || dir == "/"
}

// limitNames are the names of the resource limits in /proc/<pid>/limits.
var limitNames = map[string]string{
	"Max cpu time":          "RLIMIT_CPU",
	"Max file size":         "RLIMIT_FSIZE",
	"Max data size":         "RLIMIT_DATA",
	"Max stack size":        "RLIMIT_STACK",
	"Max core file size":    "RLIMIT_CORE",
	"Max resident set":      "RLIMIT_RSS",
	"Max processes":         "RLIMIT_NPROC",
	"Max open files":        "RLIMIT_NOFILE",
	"Max locked memory":     "RLIMIT_MEMLOCK",
	"Max address space":     "RLIMIT_AS",
	"Max file locks":        "RLIMIT_LOCKS",
	"Max pending signals":   "RLIMIT_SIGPENDING",
	"Max msgqueue size":     "RLIMIT_MSGQUEUE",
	"Max nice priority":     "RLIMIT_NICE",
	"Max realtime priority": "RLIMIT_RTPRIO",
	"Max realtime timeout":  "RLIMIT_RTTIME",
}

// limitWidth is the width of the first column of /proc/<pid>/limits.
const limitWidth = 26

// ParseLimits reads the text of /proc/<pid>/limits (proc_pid_limits(5)). Limits
// that it has no name for are left out. Of /proc/self/limits it gives what
// oci.ClampRlimits compares with.
func ParseLimits(text string) ([]specs.POSIXRlimit, error) {
	var out []specs.POSIXRlimit
	for line := range strings.Lines(text) {
		if len(line) < limitWidth {
			return nil, fmt.Errorf("limit line %q is too short", line)
		}
		name, ok := limitNames[strings.TrimSpace(line[:limitWidth])]
		if !ok {
			continue
		}
		values := strings.Fields(line[limitWidth:])
		if len(values) < 2 {
			return nil, fmt.Errorf("limit line %q has no two values", line)
		}
		soft, softErr := parseLimit(values[0])
		hard, hardErr := parseLimit(values[1])
		if softErr != nil || hardErr != nil {
			return nil, fmt.Errorf("limit line %q holds no numbers", line)
		}
		out = append(out, specs.POSIXRlimit{Type: name, Soft: soft, Hard: hard})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no limit in %.40q", text)
	}
	return out, nil
}

func parseLimit(s string) (uint64, error) {
	if s == "unlimited" {
		return ^uint64(0), nil
	}
	return strconv.ParseUint(s, 10, 64)
}

// parseUnix lists the inodes of /proc/net/unix, the seventh column.
func parseUnix(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 7 {
			out = append(out, f[6])
		}
	}
	return out
}
