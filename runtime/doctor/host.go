package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/finding"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/output"
)

// rights are the capabilities that the daemon needs, each with its use.
var rights = []struct {
	number uint
	name   string
	use    string
	needed bool
}{
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "mounts and namespaces", true},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "the loopback device of a network namespace", true},
	{unix.CAP_SETUID, "CAP_SETUID", "id maps", true},
	{unix.CAP_SETGID, "CAP_SETGID", "id maps", true},
	{unix.CAP_SETPCAP, "CAP_SETPCAP", "dropping capabilities", true},
	{unix.CAP_CHOWN, "CAP_CHOWN", "files that belong to a sandbox", true},
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "the daemon's own files of a sandbox", true},
	{unix.CAP_FOWNER, "CAP_FOWNER", "the daemon's own files of a sandbox", true},
	{unix.CAP_KILL, "CAP_KILL", "ending a sandbox", true},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "comparing a live sandbox with its declaration", true},
	{unix.CAP_SYS_CHROOT, "CAP_SYS_CHROOT", "entering a root", true},
	{unix.CAP_MKNOD, "CAP_MKNOD", "the layers of an image", true},
	{unix.CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE", "resource limits above the daemon's own: they are clamped and reported", false},
}

func examineRights(context.Context, Host) []runtime.Check {
	const name = "rights"
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return problem(name, Fail, sbxerr.Rights, fmt.Errorf("read own capabilities: %w", err)) // nobody can say that it has them
	}
	return judgeRights(name, os.Geteuid(), func(number uint) bool { return data[number/32].Effective&(1<<(number%32)) != 0 })
}

func judgeRights(name string, euid int, has func(number uint) bool) []runtime.Check {
	var missing, wanted []string
	for _, r := range rights {
		switch {
		case has(r.number):
		case r.needed:
			missing = append(missing, r.name+" ("+r.use+")")
		default:
			wanted = append(wanted, r.name+" ("+r.use+")")
		}
	}
	switch {
	case euid != 0:
		return problem(name, Fail, sbxerr.Rights, errors.New("missing: root"))
	case len(missing) > 0:
		return problem(name, Fail, sbxerr.Rights, errors.New("missing: "+strings.Join(missing, ", ")))
	case len(wanted) > 0:
		return problem(name, Warn, sbxerr.Rights, errors.New("missing: "+strings.Join(wanted, ", ")))
	}
	return ok(name, "root, with all that is needed")
}

// calls are system calls that the daemon cannot do without.
var calls = []struct {
	name  string
	since string
	probe func() error
}{
	{"openat2", "Linux 5.6", func() error {
		fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		return closeFD(fd, err)
	}},
	{"pidfd_open", "Linux 5.3", func() error {
		fd, err := unix.PidfdOpen(os.Getpid(), unix.PIDFD_NONBLOCK)
		return closeFD(fd, err)
	}},
	{"open_tree", "Linux 5.2", func() error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLOEXEC)
		return closeFD(fd, err)
	}},
	{"mount_setattr", "Linux 5.12", func() error {
		err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		if errors.Is(err, unix.ENOSYS) {
			return err
		}
		return nil // it refuses the descriptor, so it is there
	}},
	{"seccomp filters", "CONFIG_SECCOMP_FILTER", func() error {
		const action = 0x7fff0000 // SECCOMP_RET_ALLOW
		value := uint32(action)
		return seccompActionAvailable(&value)
	}},
}

func closeFD(fd int, err error) error {
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func examineKernel(context.Context, Host) []runtime.Check {
	const name = "kernel"
	var errs []error
	for _, c := range calls {
		if err := c.probe(); err != nil {
			errs = append(errs, fmt.Errorf("%s (%s): %w", c.name, c.since, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return problem(name, Fail, sbxerr.Mount, err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return problem(name, Unknown, sbxerr.Internal, err)
	}
	return ok(name, "Linux "+unix.ByteSliceToString(u.Release[:])+", every system call that is needed")
}

func examineCgroups(ctx context.Context, h Host) []runtime.Check {
	return features(cgroups.Probe(ctx, h.CgroupParent), sbxerr.CgroupController)
}

func features(list []finding.Feature, code sbxerr.Code) (found []runtime.Check) {
	for _, f := range list {
		found = append(found, feature(f, code))
	}
	return found
}

// feature turns a leaf's finding into a check. Something needed that could not
// be told is a failure: nobody can say that it would hold.
func feature(f finding.Feature, code sbxerr.Code) runtime.Check {
	c := runtime.Check{Name: f.Name, Status: OK, Detail: f.Detail}
	if f.Answer == finding.Yes {
		return c
	}
	c.Status = Warn
	if f.Answer == finding.Unknown {
		c.Status = Unknown
	}
	if f.Needed {
		c.Status = Fail
	}
	if f.Err != nil {
		if of := sbxerr.Of(f.Err); of != sbxerr.Unknown {
			code = of
		}
		c.Detail = strings.TrimPrefix(f.Detail+": "+f.Err.Error(), ": ")
	}
	c.Code, c.Remedy = string(code), remedy(code, f.Err)
	return c
}

func examineUserNS(context.Context, Host) []runtime.Check {
	const name = "user namespaces"
	ids := []mount.IDMap{{Disk: 0, Host: 65534, Size: 1}}
	ns, err := mount.NewUserNS(ids, ids)
	if err != nil {
		return problem(name, Fail, sbxerr.UserNS, err)
	}
	if err := ns.Close(); err != nil {
		return problem(name, Unknown, sbxerr.UserNS, err)
	}
	return ok(name, "can be made and mapped")
}

// subordinate are the files in which others are given ids (subuid(5)).
var subordinate = []string{"/etc/subuid", "/etc/subgid"}

// examineIDs looks whether somebody else hands out the same ids.
func examineIDs(_ context.Context, h Host) []runtime.Check { return judgeIDs(h, subordinate) }

func judgeIDs(h Host, files []string) []runtime.Check {
	const name = "host ids"
	if h.IDBlocks == 0 {
		return ok(name, "no range is reserved yet; the daemon does so at its start")
	}
	first, last := uint64(h.IDBase), uint64(h.IDBase)+uint64(h.IDBlocks)*65536-1
	detail := fmt.Sprintf("%d to %d, for %d sandboxes", first, last, h.IDBlocks)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return problem(name, Unknown, sbxerr.IDRange, err)
		}
		if line := overlapping(string(data), first, last); line != "" {
			return problem(name, Warn, sbxerr.IDRange, fmt.Errorf("%s: %q in %s overlaps", detail, line, file))
		}
	}
	return ok(name, detail)
}

// overlapping returns the first line of a subuid(5) file that shares ids with
// first to last.
func overlapping(text string, first, last uint64) string {
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 {
			continue
		}
		start, err1 := strconv.ParseUint(fields[1], 10, 64)
		count, err2 := strconv.ParseUint(fields[2], 10, 64)
		if err1 == nil && err2 == nil && start <= last && count > 0 && (start >= first || count > first-start) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// minFree is the space below which importing an image is likely to fail.
const minFree = 1 << 30

func examineFiles(_ context.Context, h Host) []runtime.Check {
	dir := existing(h.Root)
	found := append(examineFS("image files", dir), examineOutput(dir)...)
	return append(found, examineSpace("disk space", dir, func(s space) error { return s.below(minFree, 1) })...)
}

// examineFS tries there what a root file system is made of.
func examineFS(name, dir string) []runtime.Check {
	kind, err := mount.FSName(dir)
	if err != nil {
		return problem(name, Fail, sbxerr.StateDir, err) // what cannot be looked at cannot be used
	}
	switch err := mount.Probe(dir); {
	case output.Full(err):
		return full(name, err)
	case err != nil:
		return problem(name, Fail, sbxerr.Overlay, fmt.Errorf("%s at %q: %w", kind, dir, err))
	}
	return ok(name, kind+" at "+dir+": overlays of layers with mapped ids work")
}

// examineOutput tries there what kept output is made of.
func examineOutput(dir string) []runtime.Check {
	const name = "output files"
	switch err := output.Probe(dir); {
	case output.Full(err):
		return full(name, err)
	case err != nil:
		return problem(name, Fail, sbxerr.StateDir, err) // the daemon would refuse to start
	}
	return ok(name, dir+": splice and holes work")
}

// full is no reason not to start: what runs can still be read, ended and removed, which
// may be what makes room.
func full(name string, err error) []runtime.Check {
	return problem(name, Warn, sbxerr.StateDir, fmt.Errorf("the disk is full, so that no sandbox can be made: %w", err))
}

// existing returns path or the nearest directory above it that exists.
func existing(path string) string {
	for path != "/" {
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}

func examineNetwork(context.Context, Host) []runtime.Check {
	return features(netns.Probe(), sbxerr.Network)
}

func examineFilters(context.Context, Host) []runtime.Check {
	return features(netns.ProbeFilters(), sbxerr.Network)
}
