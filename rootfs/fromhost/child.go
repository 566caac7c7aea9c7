package fromhost

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// collectorName is the first argument of the collector's process. Any program
// that links this package becomes the collector when it is started by this name.
const collectorName = "caisson-collect"

// ID is the user and the group of the collector. It is right below the
// gateway's and owns nothing, while hosts have files and processes of nobody
// (65534).
const ID = 1879048190

// begun is the first line of the collector's output; the tar follows.
type begun struct {
	Summary string
	Env     []string // PATH and LANG that suit the content, K=V
}

// ended is what the collector writes to its standard error.
type ended struct {
	Warnings []string // what the caller should know, a line each
	Code     sbxerr.Code
	Error    string
}

// widePipe is the most that pipe(7) allows everybody.
const widePipe = 1 << 20

func init() {
	if len(os.Args) > 0 && os.Args[0] == collectorName {
		os.Exit(child())
	}
}

// child is the collector's process.
func child() int {
	goruntime.LockOSThread() // the programs that it starts inherit from this thread
	warnings, err := serve()
	end := ended{Warnings: warnings}
	if err != nil {
		err = coded(err)
		end.Code, end.Error = sbxerr.Of(err), err.Error()
		if e, ok := errors.AsType[*sbxerr.Error](err); ok {
			end.Error = e.Err.Error()
		}
	}
	if json.NewEncoder(os.Stderr).Encode(end) != nil || err != nil {
		return 1
	}
	return 0
}

func serve() (warnings []string, err error) {
	if err := confined(); err != nil {
		return nil, err
	}
	var r Request
	if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	c := newCollector(r)
	paths, err := c.collect(r)
	if err != nil {
		return nil, err
	}
	hints := c.hints(paths)
	// With 64 KiB each side waits for the other's turn on a busy host.
	_, _ = unix.FcntlInt(os.Stdout.Fd(), unix.F_SETPIPE_SZ, widePipe)
	out := bufio.NewWriterSize(os.Stdout, 256<<10)
	if err := json.NewEncoder(out).Encode(begun{Summary: c.summary(), Env: c.environment(paths)}); err != nil {
		return nil, err
	}
	if err := c.write(out); err != nil {
		return nil, err
	}
	return append(hints, c.left.warnings()...), out.Flush()
}

// confined makes sure that the kernel refuses this process all that it refuses
// others: it owns no file, is in no group, has no capability, and cannot get one.
func confined() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
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
			return fmt.Errorf("the collector runs as %d, not as %d", id, ID)
		}
	}
	for _, c := range caps {
		if len(groups) > 0 || c.Permitted|c.Effective|c.Inheritable != 0 {
			return fmt.Errorf("the collector has groups %v and capabilities %+v", groups, caps)
		}
	}
	return nil
}

// output returns what the host's program prints, also where it fails.
func output(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	// A clean environment: no macros of a home directory, no translations.
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C"}, "/"
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		said := complaint.Bytes()
		err = fmt.Errorf("run %q: %w: %q", program, err, said[max(0, len(said)-400):])
	}
	return string(out), err
}
