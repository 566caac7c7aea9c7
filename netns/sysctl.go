package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sysctlRoot shows the settings of the calling thread's network namespace.
const sysctlRoot = "/proc/sys"

// Sysctl is one setting of a sandbox's namespace, with its reason.
type Sysctl struct {
	Key   string // "net.ipv4.ip_forward"
	Value string
	Why   string
	// IPv6 settings do not exist, and are not needed, on a kernel without it.
	IPv6 bool
	// Optional settings do not exist on every supported kernel.
	Optional bool
}

// sysctls are written in this order: changing ip_forward resets others.
//
// All are written out although most are the kernel's defaults, because a new
// namespace copies its IPv4 settings from the host (net.core
// devconf_inherit_init_net) and hosts differ: on one that runs containers
// forwarding is on. "lo" is listed beside "all" and "default" because it gets
// its copy when the namespace is made.
//
// disable_ipv6 is set for devices to come, not for all: lo is the only one
// there is, nothing can leave through it, and many test suites bind to ::1.
// A device that appeared all the same would have no IPv6.
var sysctls = []Sysctl{
	{Key: "net.ipv4.ip_forward", Value: "0", Why: "a sandbox routes for nobody"},
	{Key: "net.ipv4.ping_group_range", Value: "1 0", Why: "no group may open ICMP sockets"},
	{Key: "net.ipv4.ip_unprivileged_port_start", Value: strconv.Itoa(LowestPort), Why: "programs serve on 80 and 443, and never on the gateway's ports"},
	{Key: "net.ipv4.conf.all.route_localnet", Value: "0", Why: "127.0.0.0/8 never leaves lo"},
	{Key: "net.ipv4.conf.default.route_localnet", Value: "0", Why: "127.0.0.0/8 never leaves lo"},
	{Key: "net.ipv4.conf.lo.route_localnet", Value: "0", Why: "127.0.0.0/8 never leaves lo"},
	{Key: "net.ipv4.conf.all.rp_filter", Value: "1", Why: "packets with a source that is not routed back are dropped"},
	{Key: "net.ipv4.conf.default.rp_filter", Value: "1", Why: "packets with a source that is not routed back are dropped"},
	{Key: "net.ipv4.conf.all.accept_redirects", Value: "0", Why: "no packet changes a route"},
	{Key: "net.ipv4.conf.default.accept_redirects", Value: "0", Why: "no packet changes a route"},
	{Key: "net.ipv4.conf.lo.accept_redirects", Value: "0", Why: "no packet changes a route"},
	{Key: "net.ipv6.conf.all.forwarding", Value: "0", Why: "a sandbox routes for nobody", IPv6: true},
	{Key: "net.ipv6.conf.default.disable_ipv6", Value: "1", Why: "a device that appears has no IPv6", IPv6: true},
	{Key: "net.ipv6.conf.lo.disable_ipv6", Value: "0", Why: "::1 works, as test suites expect; lo leads nowhere", IPv6: true},
	// The kernel charges a TCP connection to a cgroup when it is accepted, and the other
	// things not at all. Streams are not slowed: an accepted connection grows its buffers.
	{Key: "net.core.somaxconn", Value: "128", Why: "bounds connections that wait to be accepted, which no cgroup counts"},
	{Key: "net.ipv4.tcp_max_syn_backlog", Value: "128", Why: "bounds connections that are half open, as above"},
	{Key: "net.ipv4.tcp_rmem", Value: "4096 16384 6291456", Why: "bounds what a connection holds before it is accepted"},
	{Key: "net.ipv4.tcp_wmem", Value: "4096 16384 4194304", Why: "the kernel's default, whatever the host's is"},
	{Key: "net.ipv4.tcp_max_tw_buckets", Value: "8192", Why: "bounds what closed connections leave behind, 6 MiB of it, which no cgroup counts"},
	{Key: "net.core.tstamp_allow_data", Value: "0", Why: "a time stamp of a packet keeps no copy of its data, which no cgroup counts", Optional: true}, // the host's alone on older kernels
	{Key: "net.ipv4.igmp_max_memberships", Value: "2", Why: "bounds the multicast groups of a socket, which no cgroup counts", Optional: true},
	{Key: "net.ipv4.igmp_max_msf", Value: "2", Why: "bounds the sources of a multicast group, as above", Optional: true},
	{Key: "net.core.optmem_max", Value: "8192", Why: "bounds options and control messages of a socket, which no cgroup counts", Optional: true}, // Linux 6.8
}

// Sysctls lists the settings of every sandbox's namespace.
func Sysctls() []Sysctl { return append([]Sysctl(nil), sysctls...) }

func (s Sysctl) path() string {
	return filepath.Join(sysctlRoot, strings.ReplaceAll(s.Key, ".", "/"))
}

// writeSysctls applies the settings to the calling thread's namespace.
func writeSysctls(want []Sysctl) error {
	dirs := sysctlDirs{}
	defer dirs.close()
	v6, err := dirs.hasIPv6()
	if err != nil {
		return err
	}
	for _, s := range want {
		if s.IPv6 && !v6 {
			continue
		}
		if err := dirs.write(s); err != nil && !(s.Optional && errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("set sysctl %q to %q: %w", s.Key, s.Value, err)
		}
	}
	return nil
}

// sysctlDirs are the directories below /proc/sys/net that were opened, "ipv4" and its
// like, in the calling thread's namespace.
//
// The kernel looks each of them up among those of all namespaces, one by one: with 500
// sandboxes that takes longer than to read a setting. So it is done once for each.
type sysctlDirs map[string]int

func (d sysctlDirs) close() {
	for _, fd := range d {
		_ = unix.Close(fd) // nothing was written
	}
}

// write and read use plain descriptors: os.OpenFile would register each of
// them with the poller, because files of /proc/sys can be polled, and that
// costs more than all the rest.
func (d sysctlDirs) write(s Sysctl) error {
	fd, err := d.open(s, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(s.Value)) // taken whole or refused
	return errors.Join(s.wrap("write", err), unix.Close(fd))
}

// read returns the live value with the kernel's tabs made spaces.
func (d sysctlDirs) read(s Sysctl) (string, error) {
	fd, err := d.open(s, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	var buf [256]byte // far more than any declared value
	n, err := unix.Read(fd, buf[:])
	if err := errors.Join(s.wrap("read", err), unix.Close(fd)); err != nil {
		return "", err
	}
	return strings.Join(strings.Fields(string(buf[:n])), " "), nil
}

func (d sysctlDirs) open(s Sysctl, flags int) (int, error) {
	family, name, _ := strings.Cut(strings.TrimPrefix(s.Key, "net."), ".")
	dir, err := d.dir(family)
	if err != nil {
		return -1, s.wrap("open", err)
	}
	fd, err := unix.Openat(dir, strings.ReplaceAll(name, ".", "/"), flags|unix.O_CLOEXEC, 0)
	return fd, s.wrap("open", err)
}

func (d sysctlDirs) dir(family string) (int, error) {
	if fd, ok := d[family]; ok {
		return fd, nil
	}
	fd, err := unix.Open(filepath.Join(sysctlRoot, "net", family), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		d[family] = fd
	}
	return fd, err
}

func (s Sysctl) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: s.path(), Err: err}
}

// hasIPv6 reports whether the kernel has IPv6 at all. A file system error is
// not taken for an answer.
func hasIPv6() (bool, error) {
	dirs := sysctlDirs{}
	defer dirs.close()
	return dirs.hasIPv6()
}

func (d sysctlDirs) hasIPv6() (bool, error) {
	_, err := d.dir("ipv6")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "open", Path: filepath.Join(sysctlRoot, "net/ipv6"), Err: err}
	}
	return true, nil
}
