package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Allowed says which directories of the host may become workspaces.
type Allowed struct {
	// Roots are the directories at or below which a workspace must lie. Empty means
	// WorkRoots, without the directories of /root whose name begins with a dot: they hold
	// root's keys and settings.
	Roots []string
	// Linked are the directories to which WorkRoots lead that are links.
	Linked []string
	// Private are the daemon's own directories: neither they nor a directory
	// above or below them may be a workspace.
	Private []string
}

// WorkRoots are the directories below which people keep their work (hier(7)).
var WorkRoots = []string{"/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var/tmp"}

// sensitiveTrees must not be shared with a sandbox, nor anything below them:
// they hold the host's programs, configuration, kernel interfaces and sockets
// (CIS Docker Benchmark 5.6). An allowed root inside of one is the operator's
// explicit word for that part.
var sensitiveTrees = []string{
	"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr",
	"/var/run", "/var/lib/caisson", "/var/lib/containerd", "/var/lib/docker", "/var/lib/containers", "/var/lib/dpkg",
	"/var/lib/rpm", "/var/lib/kubelet", "/var/lib/systemd",
}

// sensitiveDirs must not be shared whole; directories below them may be.
var sensitiveDirs = []string{"/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var", "/var/lib", "/var/tmp"}

// secretNames are directories that hold keys wherever they are.
var secretNames = []string{".aws", ".azure", ".config/gcloud", ".docker", ".gnupg", ".kube", ".ssh"}

// Check refuses dir by its name alone: it must be absolute and clean, lie in
// an allowed root, and not be a directory that no sandbox may have. All
// reasons are given at once. Of a link, the directory that it leads to is to be checked
// too: see Opened.
func (a Allowed) Check(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || strings.ContainsRune(dir, 0) {
		return sbxerr.New(sbxerr.Workspace, "mount.workspace", "host directory %q is not a clean absolute path", sbxerr.Clip(dir))
	}
	err := errors.Join(a.checkSensitive(dir), a.checkPrivate(dir), checkSecret(dir))
	if err == nil && !a.grants(dir) {
		return a.refuse(dir)
	}
	return sbxerr.Wrap(sbxerr.Workspace, "mount.workspace", err)
}

// grants reports whether dir lies in an allowed root.
func (a Allowed) grants(dir string) bool {
	if len(a.Roots) > 0 {
		return slices.ContainsFunc(a.Roots, func(root string) bool { return within(dir, root) })
	}
	return !strings.HasPrefix(dir, "/root/.") &&
		slices.ContainsFunc(slices.Concat(WorkRoots, a.Linked), func(root string) bool { return within(dir, root) })
}

// refuse says which setting would allow dir.
func (a Allowed) refuse(dir string) error {
	err := fmt.Errorf("host directory %q lies outside the allowed roots %q", sbxerr.Clip(dir), a.Roots)
	remedy := fmt.Sprintf("add it to workspaces.allowed_roots in the daemon's configuration, and reload the daemon (SIGHUP): %s", sbxerr.Clip(dir))
	if len(a.Roots) == 0 {
		err = fmt.Errorf("host directory %q lies in none of %s, where people keep their work", sbxerr.Clip(dir), strings.Join(WorkRoots, ", "))
		if strings.HasPrefix(dir, "/root/.") {
			err = fmt.Errorf("host directory %q holds settings or keys of root", sbxerr.Clip(dir))
		}
		remedy = fmt.Sprintf("list it in workspaces.allowed_roots in the daemon's configuration, with those of %s that are to stay allowed, and reload the daemon (SIGHUP): [%s, …]",
			strings.Join(WorkRoots, ", "), sbxerr.Clip(dir))
	}
	return sbxerr.WithRemedy(sbxerr.Workspace, "mount.workspace", err, remedy)
}

func (a Allowed) checkSensitive(dir string) error {
	if slices.Contains(sensitiveDirs, dir) {
		return fmt.Errorf("host directory %q is shared by the whole host: name one below it", sbxerr.Clip(dir))
	}
	for _, tree := range sensitiveTrees {
		excepted := slices.ContainsFunc(a.Roots, func(root string) bool {
			return root != tree && within(root, tree) && within(dir, root)
		})
		if within(dir, tree) && !excepted {
			return fmt.Errorf("host directory %q is part of the host's %s", sbxerr.Clip(dir), tree)
		}
	}
	return nil
}

func (a Allowed) checkPrivate(dir string) error {
	for _, p := range a.Private {
		if within(dir, p) || within(p, dir) {
			return fmt.Errorf("host directory %q holds, or lies in, the daemon's own %q", sbxerr.Clip(dir), p)
		}
	}
	return nil
}

func checkSecret(dir string) error {
	for _, name := range secretNames {
		if strings.Contains(dir+"/", "/"+name+"/") {
			return fmt.Errorf("host directory %q is a directory for keys (%s)", sbxerr.Clip(dir), name)
		}
	}
	return nil
}

// within reports whether path is root or lies below it. Both are clean.
func within(path, root string) bool {
	return path == root || root == "/" || strings.HasPrefix(path, root+"/")
}

// Workspace is an opened directory of the host, or a regular file, checked and not yet attached.
// It is opened once: what was checked is what is mounted, whatever happens to
// the path in between.
type Workspace struct {
	dir      *os.File
	UID, GID uint32   // as whom to act there, on the host
	File     bool     // it is a regular file
	groups   []uint32 // see Opened
}

// Close releases the directory. An attached workspace stays.
func (w *Workspace) Close() error { return w.dir.Close() }

// Owner maps the workspace's owner on the host to the host ids uid and gid of
// a sandbox user, and nothing else: what the user creates belongs to the owner
// on the host, and files of anybody else show as nobody's.
func (w *Workspace) Owner(uid, gid uint32) (uids, gids []IDMap) {
	return []IDMap{{Disk: w.UID, Host: uid, Size: 1}}, []IDMap{{Disk: w.GID, Host: gid, Size: 1}}
}

// Attach mounts the workspace at target, an existing directory of the
// daemon's, or file. Mounts below the directory on the host are not part of it.
func (w *Workspace) Attach(target string, readOnly bool, ids *UserNS) error {
	err := bind(w.dir, target, readOnly, ids)
	if err == nil {
		return nil
	}
	return sbxerr.Wrap(mountCode(err), "mount.workspace", fmt.Errorf("host directory %q: %w", w.dir.Name(), err))
}

// RemovePoint detaches what is mounted at path and removes the directory,
// which must be empty then. Absent is success.
func RemovePoint(path string) error {
	if err := Detach(path); err != nil {
		return err
	}
	return sbxerr.Wrap(sbxerr.Mount, "mount.point", owndir.Remove(path))
}

// behind bounds how many mounts are taken apart at a time.
var behind = make(chan struct{}, 4)

// RemovePointBehind is RemovePoint of a mount that may have many files. The kernel forgets them
// one by one when the last user of the mount ends: a descriptor, so that nobody waits for it.
func RemovePointBehind(path string) error {
	return holding(path, func() error { return RemovePoint(path) })
}

// DetachBehind is Detach of such a mount.
func DetachBehind(path string) error { return holding(path, func() error { return Detach(path) }) }

func holding(path string, remove func() error) error {
	last, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return remove() // mostly absent
	}
	err = remove()
	go func() {
		behind <- struct{}{}
		_ = last.Close() // nothing was written by it
		<-behind
	}()
	return err
}

func wrapPath(verb, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q: %w", verb, path, err)
}
