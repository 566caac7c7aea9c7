package posture

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// namespaceLinks are the names of the links in /proc/<pid>/ns, with the type that a
// specification gives to each.
var namespaceLinks = []struct {
	link string
	kind specs.LinuxNamespaceType
}{
	{"cgroup", specs.CgroupNamespace},
	{"ipc", specs.IPCNamespace},
	{"mnt", specs.MountNamespace},
	{"net", specs.NetworkNamespace},
	{"pid", specs.PIDNamespace},
	{"time", specs.TimeNamespace},
	{"user", specs.UserNamespace},
	{"uts", specs.UTSNamespace},
}

// live is what the kernel shows of the process.
type live struct {
	threads    []thread
	namespaces map[string]string // link: target
	uidMap     string
	gidMap     string
	setgroups  string
	cgroups    []cgroup
	mounts     []mount
	limits     []specs.POSIXRlimit
	oom        string
	label      string
	env        string
	files      []openFile
	sockets    []string // inodes of the unix sockets of its network namespace
	root, cwd  place
	program    place
}

// place is where a magic link leads.
type place struct {
	path  string
	mount uint64
}

func readLive(p files) (live, error) {
	var l live
	for _, read := range []func(files, *live) error{
		readThreads, readNamespaces, readTexts, readMounts, readLimits, readPlaces, readFiles,
	} {
		if err := read(p, &l); err != nil {
			return live{}, err
		}
	}
	return l, nil
}

// readThreads reads every thread, because each has credentials of its own. One
// that ends meanwhile is left out; the first never may.
func readThreads(p files, l *live) error {
	tids, err := p.names("task")
	if err != nil {
		return err
	}
	for _, tid := range tids {
		text, err := p.read("task/" + tid + "/status")
		if errors.Is(err, errEnded) || errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		t, err := parseStatus(text)
		if err != nil {
			return fmt.Errorf("thread %s: %w", tid, err)
		}
		l.threads = append(l.threads, t)
	}
	if !slices.ContainsFunc(l.threads, func(t thread) bool { return t.leader() && !t.ended() }) {
		return errEnded
	}
	return nil
}

func readNamespaces(p files, l *live) (err error) {
	l.namespaces, err = namespacesOf(p)
	return err
}

func namespacesOf(p files) (map[string]string, error) {
	out := make(map[string]string, len(namespaceLinks))
	for _, n := range namespaceLinks {
		target, err := p.readlink("ns/" + n.link)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(target, n.link+":[") || !strings.HasSuffix(target, "]") {
			return nil, fmt.Errorf("link %q leads to %q", n.link, target)
		}
		out[n.link] = target
	}
	return out, nil
}

func readTexts(p files, l *live) error {
	var cgroups string
	for _, f := range []struct {
		name string
		to   *string
	}{
		{"uid_map", &l.uidMap}, {"gid_map", &l.gidMap}, {"setgroups", &l.setgroups}, {"cgroup", &cgroups},
		{"oom_score_adj", &l.oom}, {"environ", &l.env},
	} {
		text, err := p.read(f.name)
		if err != nil {
			return err
		}
		*f.to = strings.TrimRight(text, "\n")
	}
	label, err := p.read("attr/current")
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, os.ErrNotExist) { // no security module that labels
		return err
	}
	l.label = strings.TrimRight(label, "\x00\n")
	l.cgroups, err = parseCgroups(cgroups)
	return err
}

func readMounts(p files, l *live) error {
	text, err := p.read("mountinfo")
	if err != nil {
		return err
	}
	l.mounts, err = parseMounts(text)
	return err
}

func readLimits(p files, l *live) error {
	text, err := p.read("limits")
	if err != nil {
		return err
	}
	l.limits, err = ParseLimits(text)
	return err
}

func readPlaces(p files, l *live) error {
	for name, to := range map[string]*place{"root": &l.root, "cwd": &l.cwd, "exe": &l.program} {
		path, err := p.readlink(name)
		if err != nil {
			return err
		}
		id, err := p.mountID(name)
		if err != nil {
			return err
		}
		*to = place{path, id}
	}
	return nil
}

// openFile is one descriptor.
type openFile struct {
	number int
	target string // as readlink shows it
	mount  uint64 // of the file
	flags  uint64 // of open(2)
}

func readFiles(p files, l *live) error {
	numbers, err := p.names("fd")
	if err != nil {
		return err
	}
	for _, number := range numbers {
		f, err := readFile(p, number)
		if errors.Is(err, os.ErrNotExist) { // closed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		l.files = append(l.files, f)
	}
	slices.SortFunc(l.files, func(a, b openFile) int { return a.number - b.number })
	unix, err := p.read("net/unix")
	if err != nil {
		return err
	}
	l.sockets = parseUnix(unix)
	return nil
}

func readFile(p files, number string) (openFile, error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return openFile{}, err
	}
	target, err := p.readlink("fd/" + number)
	if err != nil {
		return openFile{}, err
	}
	info, err := p.read("fdinfo/" + number)
	if err != nil {
		return openFile{}, err
	}
	text, _ := field(info, "mnt_id")
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return openFile{}, fmt.Errorf("mount of descriptor %d: %w", n, err)
	}
	text, _ = field(info, "flags")
	flags, err := strconv.ParseUint(text, 8, 64)
	if err != nil {
		return openFile{}, fmt.Errorf("flags of descriptor %d: %w", n, err)
	}
	return openFile{n, target, id, flags}, nil
}
