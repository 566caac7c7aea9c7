package ctrd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processes lists the processes of this pid namespace that match.
func processes(match func(pid int) bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && match(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// program is the name of the file that pid executes, "" if it has ended. Arguments
// alone prove little, as any process can set its own; this cannot be had that way.
// The file may have been replaced by an update, hence " (deleted)" (proc(5)).
func program(pid int) string {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	return filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
}

// arguments are those of pid, each with a NUL behind it; empty if it has ended.
func arguments(pid int) []byte {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return args
}

// hasChildren says whether any thread of pid has a child. When that cannot be
// read, it says yes: a caller that would kill must not.
func hasChildren(pid int) bool {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(lists) == 0 {
		return true
	}
	for _, l := range lists {
		if c, err := os.ReadFile(l); err != nil || len(c) > 0 {
			return true
		}
	}
	return false
}
