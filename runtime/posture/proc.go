package posture

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/kernelfile"
)

// errEnded: the process is gone, or only its entry is left.
var errEnded = errors.New("process has ended")

// files is /proc/<pid>; tests bring one that was recorded.
type files interface {
	read(name string) (string, error)
	readlink(name string) (string, error)
	names(dir string) ([]string, error)
	// mountID tells on which mount of its namespace a magic link's target lies.
	mountID(name string) (uint64, error)
}

// procDir is a directory of /proc, held open: the kernel binds it to the process
// and not to its number, so all that is read through it is of one process.
type procDir struct {
	dir *os.File
}

// openProcess opens /proc/<pid> and proves by the pidfd that the number still
// meant the process when it was opened.
func openProcess(pid int, pidfd *os.File) (procDir, error) {
	dir, err := os.OpenFile("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return procDir{}, errEnded
	}
	if err != nil {
		return procDir{}, err
	}
	if err := samePID(pid, pidfd); err != nil {
		return procDir{}, errors.Join(err, dir.Close())
	}
	return procDir{dir}, nil
}

// samePID compares pid with the number that the kernel shows for pidfd, -1 once
// the process has been reaped (pidfd_open(2)).
func samePID(pid int, pidfd *os.File) error {
	info, err := kernelfile.Read(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd.Fd()))
	if err != nil {
		return fmt.Errorf("read pidfd: %w", err)
	}
	switch of, ok := field(info, "Pid"); {
	case !ok:
		return errors.New("descriptor is not a pidfd")
	case of == "-1":
		return errEnded
	case of != strconv.Itoa(pid):
		return fmt.Errorf("pidfd is of process %s, not %d", of, pid)
	}
	return nil
}

func (p procDir) close() error { return p.dir.Close() }

func (p procDir) read(name string) (string, error) {
	text, err := kernelfile.ReadAt(int(p.dir.Fd()), name)
	if err != nil {
		return "", p.fail("read", name, err)
	}
	return text, nil
}

func (p procDir) names(dir string) ([]string, error) {
	fd, err := unix.Openat(int(p.dir.Fd()), dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, p.fail("open", dir, err)
	}
	f := os.NewFile(uintptr(fd), dir)
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, p.fail("list", dir, err)
	}
	return names, nil
}

func (p procDir) readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(p.dir.Fd()), name, buf)
	if err != nil {
		return "", p.fail("read link", name, err)
	}
	return string(buf[:n]), nil
}

// mountID asks the kernel for what it has cached, so that no file system of the
// sandbox can keep the daemon waiting.
func (p procDir) mountID(name string) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(int(p.dir.Fd()), name, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st)
	if err != nil {
		return 0, p.fail("stat", name, err)
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return 0, fmt.Errorf("stat %q: the kernel tells no mount id (it needs 5.8)", name)
	}
	return st.Mnt_id, nil
}

// fail names the file. ESRCH is the kernel's word for a process that is gone.
func (p procDir) fail(verb, name string, err error) error {
	if errors.Is(err, unix.ESRCH) {
		return errEnded
	}
	return fmt.Errorf("%s %q: %w", verb, name, err)
}

// field returns the value of "key:<blank>value" in text.
func field(text, key string) (string, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}
