package imageproc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/seccomp"
)

// Memory is what a process may have of it, in bytes.
const Memory = 768 << 20

// sparing is how much its heap may grow, in percent, before Go looks for what is free.
const sparing = 50

// openFiles is how many descriptors a process may have that opens none.
const openFiles = 64

// start is the first message.
type start struct {
	Kind    string          `json:"kind"`
	Disk    int64           `json:"disk"`
	Files   int             `json:"files"`
	Host    bool            `json:"host,omitempty"`
	Request json.RawMessage `json:"request"`
}

// Handler does the work of one kind. files are those of the Job.
type Handler func(c *Conn, request json.RawMessage, files []*os.File) error

// The descriptors of a process: the connection, and the program itself, before those of a Job.
const (
	connFD  = 3
	firstFD = 5
)

// Main is the program: it serves one request and returns the exit status. A failure is a message,
// so the status is 0 if that could be sent.
func Main(handlers map[string]Handler) int {
	goruntime.LockOSThread() // the programs that it starts inherit from this thread
	if err := confine(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c := NewConn(os.NewFile(connFD, "daemon"))
	err := serve(c, handlers)
	if err == nil {
		return 0
	}
	if c.Send("failed", FailureOf(err)) != nil {
		return 1
	}
	return 0
}

func serve(c *Conn, handlers map[string]Handler) error {
	kind, body, err := c.Receive(maxFrame)
	if err != nil {
		return err
	}
	var s start
	if err := json.Unmarshal(body, &s); err != nil || kind != "start" {
		return errors.Join(fmt.Errorf("%w: %q", errBroken, kind), err)
	}
	do, ok := handlers[s.Kind]
	if !ok {
		return fmt.Errorf("there is no work of the kind %q", s.Kind)
	}
	if err := bound(unix.RLIMIT_FSIZE, uint64(max(s.Disk, 0))); err != nil {
		return err
	}
	var files []*os.File
	for n := range s.Files {
		files = append(files, os.NewFile(uintptr(firstFD+n), "file"))
	}
	if !s.Host {
		if err := seal(); err != nil {
			return err
		}
	}
	return do(c, s.Request, files)
}

// seal leaves the process its memory, its threads, and the files that it has. The files of the
// host, sockets and programs are closed to it.
func seal() error {
	if err := bound(unix.RLIMIT_NOFILE, openFiles); err != nil {
		return err
	}
	if err := seccomp.Images().Enter(); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

func bound(resource int, most uint64) error {
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		return fmt.Errorf("bound the resource %d: %w", resource, err)
	}
	return nil
}

// confine makes sure that the kernel refuses this process all that it refuses others: it owns no
// file, is in no group, has no capability, and cannot get one. Its memory is bounded, and closed
// to others of the same user.
func confine() error {
	if err := unix.CloseRange(connFD, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("mark descriptors: %w", err)
	}
	_ = unix.Close(connFD + 1) // the program
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("be closed to others: %w", err)
	}
	for of, most := range map[int]uint64{unix.RLIMIT_DATA: Memory, unix.RLIMIT_CORE: 0, unix.RLIMIT_MEMLOCK: 0, unix.RLIMIT_MSGQUEUE: 0} {
		if err := bound(of, most); err != nil {
			return err
		}
	}
	debug.SetGCPercent(sparing)
	return checkRights()
}

func checkRights() error {
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	uid, euid, suid := unix.Getresuid()
	gid, egid, sgid := unix.Getresgid()
	for _, id := range []int{uid, euid, suid, gid, egid, sgid} {
		if id != ID {
			return fmt.Errorf("%s runs as %d, not as %d", Name, id, ID)
		}
	}
	for _, c := range caps {
		if len(groups) > 0 || c.Permitted|c.Effective|c.Inheritable != 0 {
			return fmt.Errorf("%s has groups %v and capabilities %+v", Name, groups, caps)
		}
	}
	return nil
}
