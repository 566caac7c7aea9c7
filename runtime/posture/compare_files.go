package posture

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// eventFiles are the descriptors without a file that the Go runtime opens for
// itself.
var eventFiles = []string{"anon_inode:[eventpoll]", "anon_inode:[eventfd]"}

// listenerFile is the descriptor by which PID 1 answers for its own filter. There is no
// second one: the kernel takes no listener below another.
const listenerFile = "anon_inode:seccomp notify"

// compareFiles: PID 1 has /dev/null three times, its connection to the daemon, what Go
// needs, the listener of its filter, and one file to write to. Anything else was inherited,
// and a descriptor of the host is a way out (CVE-2024-21626).
func compareFiles(w want) []Result {
	null, ok := mountOf(w.live.mounts, "/dev")
	var strange []string
	sockets, standard, listeners, ends, mostEnds := 0, 0, 0, 0, 1
	if w.Adopted { // for a moment, that of the earlier daemon and that of this one
		mostEnds = 2
	}
	for _, f := range w.live.files {
		switch {
		case f.number <= 2 && ok && f.mount == null && f.target == "/dev/null":
			standard++
		case f.number > 2 && isUnix(f, w.live.sockets):
			sockets++
		case f.number > 2 && slices.Contains(eventFiles, f.target):
		case f.number > 2 && f.target == listenerFile && len(w.Listener) > 0 && listeners == 0:
			listeners++
		case f.number > 2 && isEnds(w, f) && ends < mostEnds:
			ends++
		case f.number > 2 && w.Adopted && (ofCommand(f) || isLook(w, f)):
		default:
			strange = append(strange, fmt.Sprintf("%d is %s", f.number, f.target))
		}
	}
	return []Result{
		{Name: "descriptors", Declared: none + " inherited", Live: orNone(strings.Join(strange, ", ")) + " inherited", OK: len(strange) == 0},
		{Name: "standard streams", Declared: "3 of /dev/null", Live: fmt.Sprintf("%d of /dev/null", standard), OK: standard == 3},
		{Name: "sockets", Declared: fmt.Sprintf("at most %d", w.Sockets), Live: fmt.Sprint(sockets), OK: sockets <= w.Sockets},
	}
}

// isEnds reports whether f is the declared file, on the mount that bounds it, and
// open for nothing but writing. Nobody is there to name it from inside.
func isEnds(w want, f openFile) bool {
	bounded := slices.ContainsFunc(w.host.mounts, func(m mount) bool { return m.id == f.mount && m.point == path.Dir(w.Ends) })
	return bounded && f.target == w.Ends && f.flags&unix.O_ACCMODE == unix.O_WRONLY
}

// ofCommand reports whether f is what PID 1 holds for a command: an end of a pipe,
// or a terminal.
func ofCommand(f openFile) bool {
	return strings.HasPrefix(f.target, "pipe:[") || f.target == "/dev/ptmx" || strings.HasPrefix(f.target, "/dev/pts/")
}

// isLook reports whether f is open for a look at the sandbox's own processes, or at its
// count of netlink sockets. PID 1 takes such looks at any time once commands run.
func isLook(w want, f openFile) bool {
	proc, ok := mountOf(w.live.mounts, "/proc")
	if !ok || f.mount != proc || f.flags&unix.O_ACCMODE != unix.O_RDONLY {
		return false
	}
	parts := strings.Split(strings.TrimPrefix(f.target, "/proc"), "/") // "/1/stat" is three
	return f.target == "/proc" || len(parts) == 3 && parts[2] == "stat" || strings.HasSuffix(f.target, "/net/protocols")
}

// isUnix reports whether f is a unix socket of the sandbox's own network
// namespace.
func isUnix(f openFile, inodes []string) bool {
	inode, ok := strings.CutPrefix(f.target, "socket:[")
	return ok && slices.Contains(inodes, strings.TrimSuffix(inode, "]"))
}
