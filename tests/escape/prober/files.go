package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// censusName is the attempt that main makes before all others.
const censusName = "descriptors at the start"

// readOnly are the answers to an attempt to write where nothing may be
// written: by the mount, or by the rights that are looked at before it.
var readOnly = []string{"EROFS", "EACCES", "EPERM"}

// devices are all that /dev may hold.
var devices = []string{"fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"}

func fileProbes() []probe {
	out := []probe{
		{id: "P061", name: censusName, want: []string{"[0:/dev/null 1:pipe 2:pipe]"}},
		{id: "P046", name: "rename in /etc", try: func() string { return outcome(unix.Rename("/etc/passwd", "/etc/passwd")) }, want: []string{"EROFS"}},
		{id: "P046", name: "chmod in /etc", try: chmodSame("/etc/passwd"), want: []string{"EROFS"}},
		{id: "P046", name: "chmod of the root", try: chmodSame("/"), want: []string{"EROFS"}},
		{id: "P046", name: "overwrite a program", try: func() string { return tryOpen(self(), unix.O_WRONLY) }, want: []string{"EROFS", "EACCES"}},
		{id: "P047", name: "remount the root", want: refused,
			try: func() string { return outcome(unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "")) }},
		{id: "P047", name: "mounts that honour set-user-id", try: mountsWithout("nosuid", nil), want: []string{none}},
		{id: "P047", name: "mounts that honour devices", try: mountsWithout("nodev", nil), want: []string{"[/dev]"}},
		{id: "P047", name: "writable mounts", try: writableMounts, want: []string{none}},
		{id: "P047", name: "mounts that are propagated", try: sharedMounts, want: []string{none}},
		{id: "P067", name: "mknod of a character device", try: mknod(unix.S_IFCHR, unix.Mkdev(1, 3)), want: refused},
		{id: "P067", name: "mknod of a block device", try: mknod(unix.S_IFBLK, unix.Mkdev(7, 250)), want: refused},
		{id: "P068", name: "what is in /dev", try: unknownDevices, want: []string{none}},
		{id: "P071", name: "cgroup mounts", try: cgroupMounts, want: []string{none}},
		{id: "P071", name: "mount a cgroup hierarchy", want: refused,
			try: func() string { return outcome(unix.Mount("none", "/tmp", "no-such-file-system", 0, "")) }},
		{id: "P073", name: "unix sockets in the file system", try: unixSockets, want: []string{none}},
		{id: "P055", name: "/sys", try: entries("/sys"), want: []string{none, "ENOENT"}},
	}
	for _, dir := range []string{"/", "/usr", "/etc", "/bin", "/dev"} {
		want := []string{"EROFS"}
		out = append(out,
			probe{id: "P046", name: "make a file in " + dir, try: createIn(dir), want: want},
			probe{id: "P046", name: "make a directory in " + dir, try: mkdirIn(dir), want: want})
	}
	for _, path := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/hostname"} {
		out = append(out, probe{id: "P076", name: "write " + path, try: func() string { return tryOpen(path, unix.O_WRONLY) }, want: []string{"EROFS", "EACCES"}})
	}
	for _, dir := range []string{"/sys/kernel", "/sys/kernel/security", "/sys/kernel/debug", "/sys/kernel/btf", "/sys/fs/cgroup", "/sys/fs/bpf", "/sys/firmware",
		"/sys/power", "/sys/module", "/sys/devices/virtual/dmi", "/sys/devices/virtual/powercap", "/sys/class/net"} {
		out = append(out, probe{id: "P055", name: dir, try: func() string { return outcome(unix.Access(dir, unix.F_OK)) }, want: []string{"ENOENT"}})
	}
	return out
}

// census lists the open descriptors and what kind of thing they are. It opens
// nothing by way of Go's runtime, which would add descriptors of its own.
func census() string {
	dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return outcome(err)
	}
	defer unix.Close(dir)
	buf := make([]byte, 64<<10)
	n, err := unix.ReadDirent(dir, buf)
	if err != nil {
		return outcome(err)
	}
	_, _, names := unix.ParseDirent(buf[:n], -1, nil)
	var found []string
	for _, name := range names {
		if name == strconv.Itoa(dir) {
			continue
		}
		link := make([]byte, 4096)
		n, _ := unix.Readlink("/proc/self/fd/"+name, link)
		target, _, _ := strings.Cut(string(link[:max(n, 0)]), ":[")
		found = append(found, name+":"+target)
	}
	slices.Sort(found)
	return list(found)
}

func self() string {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return ""
	}
	return path
}

func chmodSame(path string) func() string {
	return func() string {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return outcome(err)
		}
		return outcome(unix.Fchmodat(unix.AT_FDCWD, path, st.Mode&0o1777, 0))
	}
}

func scratchName(dir string) string {
	return filepath.Join(dir, fmt.Sprintf(".prober-%d", os.Getpid()))
}

func createIn(dir string) func() string {
	return func() string {
		fd, err := unix.Open(scratchName(dir), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return outcome(err)
		}
		_ = unix.Close(fd)
		return outcome(unix.Unlink(scratchName(dir)))
	}
}

func mkdirIn(dir string) func() string {
	return func() string {
		if err := unix.Mkdir(scratchName(dir), 0o700); err != nil {
			return outcome(err)
		}
		return outcome(unix.Rmdir(scratchName(dir)))
	}
}

func mknod(kind uint32, dev uint64) func() string {
	return func() string {
		if err := unix.Mknod(scratchName("/tmp"), kind|0o600, int(dev)); err != nil {
			return outcome(err)
		}
		return outcome(unix.Unlink(scratchName("/tmp")))
	}
}

// mountPoint is a line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
type mountPoint struct {
	path, fstype string
	options      []string // of the mount, not of its file system
	tags         []string // of its propagation
}

func mountPoints() []mountPoint {
	var out []mountPoint
	for line := range strings.Lines(readText("/proc/self/mountinfo")) {
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if len(f) < 6 || dash < 0 || dash+1 >= len(f) {
			continue
		}
		out = append(out, mountPoint{f[4], f[dash+1], strings.Split(f[5], ","), f[6:dash]})
	}
	return out
}

// node reports whether the mount is that of a device of the allow list alone,
// or hides something: a device node of /dev, or /dev/null or an empty
// directory that the runtime lays over a path. Nothing can be executed there,
// and a device has to work.
func (m mountPoint) node() bool {
	name, inDev := strings.CutPrefix(m.path, "/dev/")
	if inDev {
		return slices.Contains(devices, name)
	}
	return strings.HasPrefix(m.path, "/proc/") && m.masks()
}

// masks reports whether there is nothing below but /dev/null or an empty
// read-only directory.
func (m mountPoint) masks() bool {
	var st unix.Stat_t
	if unix.Stat(m.path, &st) != nil {
		return false
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		return st.Rdev == unix.Mkdev(1, 3)
	}
	inside, err := os.ReadDir(m.path)
	return err == nil && len(inside) == 0 && slices.Contains(m.options, "ro")
}

func mountsWithout(option string, except []string) func() string {
	return func() string {
		var found []string
		for _, m := range mountPoints() {
			if !slices.Contains(m.options, option) && !slices.Contains(except, m.path) && !m.node() {
				found = append(found, m.path)
			}
		}
		return list(found)
	}
}

// writableMounts lists those beyond what a sandbox is meant to write to.
func writableMounts() string {
	meant := []string{"/proc", "/dev/pts", "/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp", "/run", "/home", "/workspace"}
	var found []string
	for _, m := range mountPoints() {
		if slices.Contains(m.options, "rw") && !slices.Contains(meant, m.path) && !m.node() {
			found = append(found, m.path)
		}
	}
	return list(found)
}

func sharedMounts() string {
	var found []string
	for _, m := range mountPoints() {
		if len(m.tags) > 0 {
			found = append(found, m.path)
		}
	}
	return list(found)
}

func cgroupMounts() string {
	var found []string
	for _, m := range mountPoints() {
		if strings.HasPrefix(m.fstype, "cgroup") {
			found = append(found, m.path)
		}
	}
	return list(found)
}

func unknownDevices() string {
	var found []string
	dir, err := os.ReadDir("/dev")
	// Where the kernel has /proc/kcore, runc adds a link to it, and masks it.
	dir = slices.DeleteFunc(dir, func(e os.DirEntry) bool {
		target, err := os.Readlink("/dev/" + e.Name())
		return err == nil && e.Name() == "core" && target == "/proc/kcore"
	})
	for _, e := range dir {
		if !slices.Contains(devices, e.Name()) {
			found = append(found, e.Name())
		}
	}
	if err != nil || len(dir) != len(devices)+len(found) {
		return fmt.Sprintf("%d entries, %v", len(dir), err)
	}
	return list(found)
}

func entries(dir string) func() string {
	return func() string {
		e, err := os.ReadDir(dir)
		switch {
		case err != nil:
			return outcome(err)
		case len(e) == 0:
			return none
		}
		return fmt.Sprintf("%d entries", len(e))
	}
}

// unixSockets walks what can be reached, a few levels deep.
func unixSockets() string {
	var found []string
	for _, top := range []string{"/run", "/var/run", "/tmp", "/var/tmp", "/var/lib", "/home", "/root", "/etc", "/dev", "/workspace", "/usr/lib", "/opt", "/srv"} {
		_ = filepath.WalkDir(top, func(path string, e os.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil // not to be entered
			case e.IsDir() && strings.Count(path, "/") > 5:
				return filepath.SkipDir
			case e.Type() == os.ModeSocket && !slices.Contains(found, path):
				found = append(found, path)
			}
			return nil
		})
	}
	return list(found)
}

// contains reports whether a file that can be read holds a text.
func contains(path, text string) bool {
	data, err := os.ReadFile(path)
	return err == nil && bytes.Contains(data, []byte(text))
}
