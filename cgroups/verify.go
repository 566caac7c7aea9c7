package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// deviceGuard is the name under which Verify reports v2's BPF program, which
// has no file.
const deviceGuard = "devices (bpf)"

// Mismatch is a limit that is not in force as it was declared.
type Mismatch struct {
	File string
	Want string
	Live string // the live value, or why it could not be read
}

// String renders m for an error message.
func (m Mismatch) String() string {
	return fmt.Sprintf("%s is %q, declared %q", m.File, m.Live, m.Want)
}

// runcAllows are the device rules that runc appends to every allow-list and
// that no spec can switch off: mknod of any device, and /dev/net/tun.
var runcAllows = []string{"c *:* m", "b *:* m", "c 10:200 rwm"}

// Tighten sets the limits that no OCI runtime sets. Call it when the runtime
// has made the group and before the command starts, because sockets that are
// open already are not counted. It is idempotent. On v2 it does nothing: the runtime
// already set the limits, and its device program cannot be changed.
//
// On v1 it bounds TCP buffers, which are not counted as memory there (a
// sandbox could otherwise use up the host's tcp_mem over its own loopback),
// and takes away what runc adds to every allow-list. mknod is refused by the
// user namespace already, and the sandbox has no node of the other device;
// this is the second wall.
func (g *Group) Tighten(l Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	if g.host.Mode == V2 {
		return nil
	}
	err := g.tighten("memory", "memory.kmem.tcp.limit_in_bytes", pages(l.MemoryBytes/tcpShare))
	for _, rule := range runcAllows {
		if err == nil {
			err = g.tighten("devices", "devices.deny", rule)
		}
	}
	return err
}

func (g *Group) tighten(controller, file, value string) error {
	if err := writeFile(g.dir(controller), file, value); err != nil {
		return sbxerr.New(sbxerr.Cgroup, "cgroups.tighten", "write %q to %s of %q: %w", value, file, g.path, err)
	}
	return nil
}

// Verify compares the live files with want and returns every difference. A file that cannot
// be read is a difference: its limit may not be in force.
func (g *Group) Verify(want Limits) []Mismatch {
	var found []Mismatch
	for _, f := range want.Files(g.host) {
		live, err := g.live(f)
		if err != nil {
			live = "unreadable: " + err.Error()
		}
		if live != f.Value {
			found = append(found, Mismatch{File: f.Name, Want: f.Value, Live: live})
		}
	}
	if g.host.Mode == V2 {
		found = append(found, verifyDeviceGuard(g.dir("devices"))...)
	}
	return found
}

// live reads the file that f declares.
func (g *Group) live(f File) (string, error) {
	s, err := readString(g.dir(f.Controller), f.Name)
	if f.ofIO() && errors.Is(err, fs.ErrNotExist) {
		return "", nil // the group was made without the controller: nothing is bounded
	}
	if err != nil || f.Name != "devices.list" && !f.ofIO() {
		return s, err
	}
	return sortedLines(strings.Split(s, "\n")), nil
}

func verifyDeviceGuard(dir string) []Mismatch {
	m := Mismatch{File: deviceGuard, Want: "at least one program"}
	n, err := devicePrograms(dir)
	switch {
	case err != nil:
		m.Live = "unreadable: " + err.Error()
	case n == 0:
		m.Live = "none"
	default:
		return nil
	}
	return []Mismatch{m}
}
