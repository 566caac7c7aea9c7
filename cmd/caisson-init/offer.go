package main

import (
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxDescent is how many generations a command may have made by the time that it
// is looked at.
const maxDescent = 8

// offer makes the command what the kernel kills first when the sandbox is out of
// memory. Without it PID 1 has the same score, and can be next after the command
// that took it all: the whole sandbox would end. A command may lower it again to
// PID 1's own score (proc_pid_oom_score_adj(5)), at its own risk.
//
// On a busy host the command may have run for a while. What it forks from here on
// inherits the score; what it forked before is offered too.
//
// It reports false where the command may not be written to yet: this process cannot be
// dumped, and until execve(2) is over, neither can what it starts.
func offer(pid, generations int) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	fd, err := syscall.Open(dir+"/oom_score_adj", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err != syscall.EACCES // else it has ended
	}
	_, _ = syscall.Write(fd, []byte("1000")) // no more than a preference
	_ = syscall.Close(fd)
	if generations == 0 {
		return true
	}
	for _, child := range children(dir + "/task/" + strconv.Itoa(pid) + "/children") {
		offer(child, generations-1)
	}
	return true
}

// offerLater is offer for a command that is still in execve(2). One that may never be
// dumped, as nobody may read its program, is given up.
func offerLater(pid int) {
	for range 20 {
		time.Sleep(5 * time.Millisecond)
		if offer(pid, maxDescent) {
			return
		}
	}
}

// children reads a list of pids, as far as 512 bytes of it go
// (proc_pid_task(5), CONFIG_PROC_CHILDREN).
func children(path string) (pids []int) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	var buf [512]byte
	n, err := syscall.Read(fd, buf[:])
	if err != nil || n <= 0 {
		return nil
	}
	for field := range strings.FieldsSeq(string(buf[:n])) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
