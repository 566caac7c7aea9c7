package posture

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// host is what the process is compared with besides its specification.
type host struct {
	*Surroundings
	joined map[specs.LinuxNamespaceType]string // the namespaces that are declared by path, as links show them
	exists map[string]bool                     // paths to cover that this kernel has
	nodes  string                              // what is in the sandbox's directory of devices
}

// Surroundings are the daemon's own, which a sandbox must not share. Checks that run at
// the same time share them, so nobody changes them.
type Surroundings struct {
	namespaces map[string]string
	mounts     []mount
	devices    map[string]bool // file systems that the daemon sees
	unified    string          // the daemon's own cgroup on v2
}

var surroundings = shared[*Surroundings]{read: readSurroundings}

// ReadSurroundings returns what is there now. The daemon has several mounts for each
// sandbox, so one reading takes longer than all the rest of a check. Those who ask while
// another reading is under way share the next one.
func ReadSurroundings() (*Surroundings, error) {
	s, err := surroundings.get()
	return s, sbxerr.Wrap(sbxerr.Posture, "posture.surroundings", err)
}

// readSurroundings reads the daemon's own thread, locked meanwhile. /proc/self would be
// the first thread, which Go cannot end: it may have been left in a sandbox's
// network namespace by a goroutine that entered one.
func readSurroundings() (*Surroundings, error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	dir, err := os.OpenFile("/proc/thread-self", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	self := procDir{dir}
	s, err := surroundingsOf(self)
	if err = errors.Join(err, self.close()); err != nil {
		return nil, fmt.Errorf("read the daemon's own process: %w", err)
	}
	return s, nil
}

func readHost(d Declared) (h host, err error) {
	spec := d.Spec
	if h.Surroundings = d.Around; h.Surroundings == nil {
		if h.Surroundings, err = ReadSurroundings(); err != nil {
			return host{}, err
		}
	}
	if !d.Unisolated {
		if h.joined, err = joined(spec); err != nil {
			return host{}, err
		}
	}
	h.exists = existing(spec)
	if h.nodes, err = devNodes(devDir(spec)); err != nil {
		return host{}, err
	}
	return h, nil
}

func surroundingsOf(self files) (*Surroundings, error) {
	namespaces, err := namespacesOf(self)
	if err != nil {
		return nil, err
	}
	text, err := self.read("mountinfo")
	if err != nil {
		return nil, err
	}
	mounts, err := parsePlaces(text)
	if err != nil {
		return nil, err
	}
	if text, err = self.read("cgroup"); err != nil {
		return nil, err
	}
	cgroups, err := parseCgroups(text)
	if err != nil {
		return nil, err
	}
	s := &Surroundings{namespaces: namespaces, mounts: mounts, devices: make(map[string]bool, len(mounts))}
	for _, m := range mounts {
		s.devices[m.device] = true
	}
	for _, c := range cgroups {
		if c.controllers == "" {
			s.unified = c.path
		}
	}
	return s, nil
}

// joined returns the namespaces that spec names by path. It must name those that
// the daemon makes.
func joined(spec *specs.Spec) (map[specs.LinuxNamespaceType]string, error) {
	out := map[specs.LinuxNamespaceType]string{}
	for kind, prefix := range map[specs.LinuxNamespaceType]string{specs.NetworkNamespace: "net", specs.UserNamespace: "user"} {
		i := slices.IndexFunc(spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
		if i < 0 {
			return nil, fmt.Errorf("no %s namespace is declared", kind)
		}
		link, err := namespaceLink(prefix, spec.Linux.Namespaces[i].Path)
		if err != nil {
			return nil, err
		}
		out[kind] = link
	}
	return out, nil
}

// namespaceLink renders the namespace bound at path as a link in /proc/<pid>/ns
// does. Inodes of namespaces are unique while they live (namespaces(7)).
func namespaceLink(prefix, path string) (string, error) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := unix.Statfs(path, &fs); err != nil {
		return "", fmt.Errorf("stat namespace %q: %w", path, err)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return "", fmt.Errorf("%q is not a namespace", path)
	}
	if err := unix.Stat(path, &st); err != nil {
		return "", fmt.Errorf("stat namespace %q: %w", path, err)
	}
	return fmt.Sprintf("%s:[%d]", prefix, st.Ino), nil
}

// existing tells which of the paths to cover there are. The host's /proc has
// the same global entries as the sandbox's; a runtime skips absent ones.
func existing(spec *specs.Spec) map[string]bool {
	out := map[string]bool{}
	for _, paths := range [][]string{spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths} {
		for _, p := range paths {
			if within(p, "/proc") {
				_, err := os.Lstat(p)
				out[p] = !errors.Is(err, os.ErrNotExist)
			}
		}
	}
	return out
}
