package uncharged

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MoreLocks reports whether the host has more than n locks. It reads no more of them:
// while it reads, nobody on the host can take a lock.
func MoreLocks(n int) (bool, error) {
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

// Locks are those that processes hold.
type Locks struct {
	Ranges int // byte ranges
	Files  int // descriptors of locked files; one that several processes have counts for each
}

// MoreThan reports whether there are more than n of a kind.
func (l Locks) MoreThan(n int) bool { return max(l.Ranges, l.Files) > n }

// LocksOf counts the locks of processes, until there are more than most of a kind. A
// process cannot hide a lock of a byte range: closing the descriptor of its file releases it
// (fcntl(2)). In /proc/locks it can hide them behind those of others.
func LocksOf(pids []int, most int) (Locks, error) {
	held := Locks{}
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

// addTable counts the locks that the descriptors of a thread tell of. All descriptors of
// a file tell of the same byte ranges.
func addTable(tid, most int, held *Locks) error {
	dir := fmt.Sprintf("/proc/%d/fdinfo", tid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if held.MoreThan(most) {
			return nil
		}
		f, err := os.Open(dir + "/" + e.Name())
		if err == nil {
			err = errors.Join(addDescriptor(f, most, seen, held), f.Close())
		}
		if err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// addDescriptor reads lines such as "lock:	1: POSIX  ADVISORY  WRITE 12 00:2a:3 0 0".
// Files in seen have been counted.
func addDescriptor(r io.Reader, most int, seen map[string]bool, held *Locks) error {
	file, counted := "", false
	lines := bufio.NewScanner(r)
	for lines.Scan() && !held.MoreThan(most) {
		text, ok := strings.CutPrefix(lines.Text(), "lock:")
		if !ok {
			continue
		}
		f := strings.Fields(text)
		if len(f) > 1 && f[1] == "->" { // it waits for the one above
			f = append(f[:1], f[2:]...)
		}
		if len(f) < 6 {
			return fmt.Errorf("read a lock: %q has too few fields", text)
		}
		if file == "" {
			file, counted = f[5], seen[f[5]]
		}
		switch {
		case f[1] != "POSIX":
			held.Files++
		case !counted:
			held.Ranges++
		}
	}
	if file != "" {
		seen[file] = true
	}
	return lines.Err()
}

// gone reports whether err says that a process, thread or descriptor has ended.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }
