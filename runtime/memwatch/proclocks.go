package memwatch

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/kernelfile"
)

// moreLocks reports whether the host has more than n locks. It reads no more of them:
// while it reads, nobody on the host can take a lock.
func moreLocks(n int) (bool, error) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for ; n >= 0 && lines.Scan(); n-- {
	}
	return n < 0, lines.Err()
}

// lockCount are those that processes hold.
type lockCount struct {
	Ranges int // byte ranges
	Files  int // descriptors of locked files; one that several processes have counts for each
}

// MoreThan reports whether there are more than n of a kind.
func (l lockCount) MoreThan(n int) bool { return max(l.Ranges, l.Files) > n }

// locksOf counts the locks of processes, until there are more than most of a kind. A
// process cannot hide a lock of a byte range: closing the descriptor of its file releases it
// (fcntl(2)). In /proc/locks it can hide them behind those of others.
func locksOf(pids []int, most int) (lockCount, error) {
	held := lockCount{}
	for _, pid := range pids {
		tables, err := tablesOf(pid)
		if err != nil && !gone(err) {
			return held, err
		}
		for _, tid := range tables {
			if err := addTable(tid, most, &held); err != nil && !gone(err) {
				return held, err
			}
			if held.MoreThan(most) {
				return held, nil
			}
		}
	}
	return held, nil
}

// tablesOf returns a thread for each table of descriptors that a process has. All of its
// threads share one, as a rule; the first thread may have ended before the others.
func tablesOf(pid int) ([]int, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	var distinct []int
next:
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return nil, fmt.Errorf("read a thread's number: %w", err)
		}
		for _, other := range distinct {
			same, err := sameTable(tid, other)
			if err != nil && !gone(err) {
				return nil, err
			}
			if same {
				continue next
			}
		}
		distinct = append(distinct, tid)
	}
	return distinct, nil
}

// sameTable compares the descriptors of two threads. One that has ended has none.
func sameTable(a, b int) (bool, error) {
	const kcmpFiles = 2 // linux/kcmp.h
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFiles, 0, 0, 0)
	if errno != 0 {
		return false, fmt.Errorf("compare descriptors of threads %d and %d: %w", a, b, errno)
	}
	return order == 0, nil
}

// counter adds up the locks that the descriptors of one table tell of. All descriptors of
// a file tell of the same byte ranges.
type counter struct {
	held  *lockCount
	most  int
	seen  map[string]bool // files whose ranges are counted, by the kernel's name for them
	dense map[inode]bool  // files with many ranges
}

type inode struct{ device, number uint64 }

// manyRanges are more than a program has of a file whose descriptors are worth reading: the
// kernel writes all ranges for each of them.
const manyRanges = 100

func addTable(tid, most int, held *lockCount) error {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fdinfo", tid))
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	c := counter{held: held, most: most, seen: map[string]bool{}, dense: map[inode]bool{}}
	for _, name := range names {
		if held.MoreThan(most) {
			return nil
		}
		if err := c.add(tid, int(dir.Fd()), name); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// add counts the locks of a descriptor. One of a dense file counts as one of a locked file,
// unread.
func (c *counter) add(tid, dir int, name string) error {
	path := fmt.Sprintf("/proc/%d/fd/%s", tid, name)
	if len(c.dense) > 0 {
		file, err := inodeOf(path)
		if err != nil {
			return err
		}
		if c.dense[file] {
			c.held.Files++
			return nil
		}
	}
	text, err := kernelfile.ReadAt(dir, name)
	if err != nil {
		return err
	}
	ranges, err := c.addDescriptor(text)
	if err != nil || ranges <= manyRanges {
		return err
	}
	file, err := inodeOf(path)
	if err == nil {
		c.dense[file] = true
	}
	return err
}

func inodeOf(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return inode{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return inode{st.Dev, st.Ino}, nil
}

// addDescriptor reads lines such as "lock:	1: POSIX  ADVISORY  WRITE 12 00:2a:3 0 0", and
// returns how many ranges they tell of, counted before or not.
func (c *counter) addDescriptor(info string) (ranges int, err error) {
	file, counted := "", false
	for line := range strings.Lines(info) {
		text, ok := strings.CutPrefix(line, "lock:")
		if !ok {
			continue
		}
		if c.held.MoreThan(c.most) {
			break
		}
		f := strings.Fields(text)
		if len(f) > 1 && f[1] == "->" { // it waits for the one above
			f = append(f[:1], f[2:]...)
		}
		if len(f) < 6 {
			return ranges, fmt.Errorf("read a lock: %q has too few fields", text)
		}
		if file == "" {
			file, counted = f[5], c.seen[f[5]]
		}
		if f[1] != "POSIX" {
			c.held.Files++
			continue
		}
		if ranges++; !counted {
			c.held.Ranges++
		}
	}
	if file != "" {
		c.seen[file] = true
	}
	return ranges, nil
}

// gone reports whether err says that a process, thread or descriptor has ended.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }
