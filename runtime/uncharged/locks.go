package uncharged

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// maxLines bounds how many locks of the host are read at once: the kernel walks its
// list anew for each page of them.
const maxLines = 1 << 16

// Locks counts the byte-range locks of each process of the host (proc_locks(5)). A
// lock that belongs to an open file has no process and is left out; sandboxes cannot
// make one. All reports whether the host has no more than could be read.
func Locks() (perProcess map[int]int, all bool, err error) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	return countLocks(f)
}

// countLocks reads lines such as "1: POSIX  ADVISORY  WRITE 12 00:2a:3 0 0".
func countLocks(r io.Reader) (perProcess map[int]int, all bool, err error) {
	perProcess = map[int]int{}
	lines := bufio.NewScanner(r)
	for n := 0; lines.Scan(); n++ {
		if n == maxLines {
			return perProcess, false, nil
		}
		f := strings.Fields(lines.Text())
		if len(f) > 1 && f[1] == "->" { // it waits for the one above
			f = append(f[:1], f[2:]...)
		}
		if len(f) < 5 {
			return nil, false, fmt.Errorf("read a lock: %q has too few fields", lines.Text())
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil {
			return nil, false, fmt.Errorf("read a lock: %w", err)
		}
		if f[1] == "POSIX" && pid > 0 {
			perProcess[pid]++
		}
	}
	return perProcess, true, lines.Err()
}

// Group returns the child of the cgroup parent that a process is in or below, such
// as the ID of a sandbox. It is empty for any other process, and one that ended.
func Group(pid int, parent string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	return groupIn(string(text), parent)
}

// groupIn reads lines such as "4:memory:/caisson/ID/exec-1".
func groupIn(text, parent string) string {
	for line := range strings.Lines(text) {
		if _, below, ok := strings.Cut(strings.TrimSpace(line), ":/"+parent+"/"); ok {
			child, _, _ := strings.Cut(below, "/")
			return child
		}
	}
	return ""
}
