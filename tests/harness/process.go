package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// CPUTime is what a process has used of processors. Other load on the host does not change
// what work costs.
func CPUTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	fields, err := stat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	ticks := 0
	for _, f := range fields[12:14] { // utime and stime; see proc_pid_stat(5)
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// Freeze sends a process SIGSTOP and returns when all of its threads have stopped.
func Freeze(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop %d: %v", pid, err)
	}
	for deadline := time.Now().Add(startTimeout); !stopped(pid); time.Sleep(time.Millisecond) { // only wait4(2) of a child tells
		if time.Now().After(deadline) {
			t.Fatalf("%d does not stop", pid)
		}
	}
}

func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, path := range threads {
		if fields, err := stat(path); err == nil && fields[1] != "T" {
			return false
		}
	}
	return true
}

// stat returns the fields after the name, of which the second is the state.
func stat(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')'):])), nil
}
