package posture

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// protections are the mount options that may be more than declared, but not
// fewer.
var protections = []string{"ro", "nosuid", "nodev", "noexec"}

// wantMount is one mount that there must be.
type wantMount struct {
	fstype string   // "" is any
	flags  []string // of protections
	super  []string // size, owner and mode of a file system that is the sandbox's own
	from   *source  // what is bound; nil: a file system that the host does not have
	mask   bool     // the sandbox's own /dev/null or an empty read-only directory; from is /dev/null's
}

// wantPoint is all that must be mounted on one point, the lowest first.
type wantPoint struct {
	mounts   []wantMount
	optional bool
}

func compareMounts(w want) []Result {
	wanted := wantedMounts(w)
	found := map[string][]mount{}
	var shared []string
	for _, m := range w.live.mounts {
		found[m.point] = append(found[m.point], m)
		if len(m.optional) > 0 {
			shared = append(shared, m.point+" "+list(m.optional))
		}
	}
	var out []Result
	for _, point := range slices.Sorted(maps.Keys(wanted)) {
		if p := wanted[point]; !p.optional || len(found[point]) > 0 {
			out = append(out, comparePoint(w, point, p.mounts, found[point]))
		}
		delete(found, point)
	}
	for _, point := range slices.Sorted(maps.Keys(found)) {
		out = append(out, Result{Name: "mount " + point, Declared: none, Live: stackText(found[point])})
	}
	return append(out, Result{Name: "propagation", Declared: "private", Live: sharedText(shared), OK: len(shared) == 0})
}

func sharedText(shared []string) string {
	if len(shared) == 0 {
		return "private"
	}
	return strings.Join(shared, ", ")
}

// comparePoint compares what lies on one point, from the lowest to the topmost:
// what is on top is what a process sees.
func comparePoint(w want, point string, declared []wantMount, found []mount) Result {
	r := Result{Name: "mount " + point, Declared: wantText(declared), Live: orNone(stackText(found)), OK: len(declared) == len(found)}
	for i := range min(len(declared), len(found)) {
		r.OK = r.OK && declared[i].accepts(w, found[i])
	}
	return r
}

func (d wantMount) accepts(w want, m mount) bool {
	if d.mask {
		return m.source() == *d.from || d.emptyDir(w, m)
	}
	for _, flag := range d.flags {
		if !slices.Contains(m.options, flag) {
			return false
		}
	}
	if d.from != nil {
		return m.source() == *d.from && (d.fstype == "" || d.fstype == m.fstype)
	}
	ownInstance := m.root == "/" && !w.host.devices[m.device]
	return ownInstance && m.fstype == d.fstype && slices.Equal(d.super, superOf(m))
}

// emptyDir: the runtime hides a directory under a tmpfs with one inode.
func (d wantMount) emptyDir(w want, m mount) bool {
	readonly := slices.Contains(m.options, "ro") && slices.Contains(m.super, "ro")
	return m.fstype == "tmpfs" && m.root == "/" && readonly && !w.host.devices[m.device]
}

func wantedMounts(w want) map[string]wantPoint {
	out := map[string]wantPoint{}
	proc := procOf(w.live.mounts)
	mask := wantMount{mask: true, from: hostSource(w, path.Join(devDir(w.Spec), "null"))}
	add := func(point string, m wantMount) {
		out[point] = wantPoint{mounts: append(out[point].mounts, m)}
	}
	if w.Unisolated {
		addHost(w, out)
	} else {
		add("/", wantMount{flags: rootFlags(w), from: hostSource(w, w.Spec.Root.Path)})
	}
	for _, m := range w.Spec.Mounts {
		add(m.Destination, declaredMount(w, m))
	}
	for _, p := range w.Spec.Linux.ReadonlyPaths {
		if w.host.exists[p] {
			add(p, wantMount{fstype: "proc", flags: protections, from: &source{proc.device, strings.TrimPrefix(p, "/proc")}})
		}
	}
	for _, p := range w.Spec.Linux.MaskedPaths {
		switch {
		case w.host.exists[p]:
			add(p, mask)
		case !within(p, "/proc"): // there only if the image has it
			out[p] = wantPoint{mounts: []wantMount{mask}, optional: true}
		}
	}
	return out
}

func rootFlags(w want) []string {
	if w.Spec.Root.Readonly {
		return []string{"ro", "nosuid", "nodev"}
	}
	return []string{"nosuid", "nodev"}
}

// addHost adds the mounts of the host that are the root and lie below it. One goes when its
// mount point is removed on the host (mount_namespaces(7)).
func addHost(w want, to map[string]wantPoint) {
	for _, p := range w.HostMounts {
		m := wantMount{flags: []string{"nosuid", "nodev"}, from: &source{p.Device, p.Root}}
		to[p.Point] = wantPoint{mounts: append(to[p.Point].mounts, m), optional: p.Point != "/"}
	}
}

// hostSource is where a path of the host lies; a path of no mount gives a
// source that equals nothing.
func hostSource(w want, p string) *source {
	s, _ := sourceOf(w.host.mounts, p)
	return &s
}

// procOf is the /proc that the sandbox has; without one, nothing equals it.
func procOf(mounts []mount) mount {
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.point == "/proc" })
	if i < 0 {
		return mount{}
	}
	return mounts[i]
}

func declaredMount(w want, m specs.Mount) wantMount {
	d := wantMount{fstype: m.Type}
	for _, flag := range protections {
		if slices.Contains(m.Options, flag) || slices.Contains(m.Options, "r"+flag) {
			d.flags = append(d.flags, flag)
		}
	}
	if m.Type == "bind" {
		d.fstype, d.from = "", hostSource(w, m.Source)
		return d
	}
	d.super = declaredSuper(m, w.Spec.Linux)
	return d
}

// superKeys are the options of a file system that a specification sets.
var superKeys = []string{"gid", "max", "mode", "nr_inodes", "ptmxmode", "size", "uid"}

// superOf lists the options of superKeys that m has, sorted.
func superOf(m mount) []string {
	var out []string
	for _, o := range m.super {
		if key, _, ok := strings.Cut(o, "="); ok && slices.Contains(superKeys, key) {
			out = append(out, o)
		}
	}
	slices.Sort(out)
	return out
}

// declaredSuper renders the options of m as the kernel shows them: ids are the
// host's, sizes in KiB, modes without leading zeros, and defaults left out.
func declaredSuper(m specs.Mount, l *specs.Linux) []string {
	values := map[string]string{}
	if m.Type == "tmpfs" { // belongs to the one who mounts it: root inside
		values["uid"], values["gid"] = hostID(l.UIDMappings, 0), hostID(l.GIDMappings, 0)
	}
	for _, o := range m.Options {
		if key, value, ok := strings.Cut(o, "="); ok && slices.Contains(superKeys, key) {
			values[key] = shown(key, value, l)
		}
	}
	if m.Type == "tmpfs" && values["mode"] == "1777" {
		delete(values, "mode")
	}
	var out []string
	for key, value := range values {
		if m.Type == "tmpfs" && value == "0" { // the host's root
			continue
		}
		out = append(out, key+"="+value)
	}
	slices.Sort(out)
	return out
}

func shown(key, value string, l *specs.Linux) string {
	switch key {
	case "uid", "gid":
		mappings := l.UIDMappings
		if key == "gid" {
			mappings = l.GIDMappings
		}
		id, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return value
		}
		return hostID(mappings, uint32(id))
	case "mode", "ptmxmode":
		return strings.TrimLeft(value, "0")
	case "size":
		return shownSize(value)
	}
	return value
}

// shownSize rounds up to whole pages, as the kernel does. "64k" is one of the
// ways to write a size.
func shownSize(value string) string {
	if strings.HasSuffix(value, "k") {
		return value
	}
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return value
	}
	page := uint64(os.Getpagesize())
	return strconv.FormatUint((n+page-1)/page*page>>10, 10) + "k"
}

func wantText(declared []wantMount) string {
	var out []string
	for _, d := range declared {
		if d.mask {
			out = append(out, "hidden")
			continue
		}
		text := []string{"bind"}
		if d.from == nil {
			text = []string{"own", d.fstype}
		}
		text = append(text, d.flags...)
		if d.from != nil {
			text = append(text, "of "+d.from.device+":"+d.from.root)
		}
		out = append(out, strings.Join(append(text, d.super...), " "))
	}
	return strings.Join(out, ", under ")
}

func stackText(found []mount) string {
	var out []string
	for _, m := range found {
		out = append(out, fmt.Sprintf("%s %s of %s:%s %s", m.fstype, list(m.options), m.device, path.Clean(m.root), list(superOf(m))))
	}
	return strings.Join(out, ", under ")
}
