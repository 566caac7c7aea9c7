package posture

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	getFilter      = 0x420c // PTRACE_SECCOMP_GET_FILTER (linux/ptrace.h)
	instructionLen = 8
	maxFilters     = 16 // that are read; the runtime and PID 1 put one each in force

	// stopTimeout bounds the wait for a process to stop. It takes some 20 µs unless the
	// process sleeps in the kernel or its group is frozen. A host with far more to do than it has
	// processors takes seconds: a restart of the daemon must not cost a sandbox there.
	stopTimeout = 10 * time.Second
)

// readFilters reads the seccomp programs of the first thread of a process, the oldest
// first. Only a tracer may (seccomp(2), ptrace(2)), and the thread stands still meanwhile.
func readFilters(pid int, pidfd *os.File) ([][]byte, error) {
	type answer struct {
		filters [][]byte
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		// The kernel knows a thread as the tracer. It is given back only after success: its
		// end releases the process, whatever happened here.
		goruntime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // Go cannot end the first thread: leave it out
			filters, err := readFilters(pid, pidfd)
			goruntime.UnlockOSThread()
			answers <- answer{filters, err}
			return
		}
		filters, err := traceFilters(pid, pidfd)
		if err == nil {
			goruntime.UnlockOSThread()
		}
		answers <- answer{filters, err}
	}()
	a := <-answers
	return a.filters, a.err
}

func traceFilters(pid int, pidfd *os.File) ([][]byte, error) {
	if err := unix.PtraceSeize(pid); err != nil {
		return nil, traceError("trace", err)
	}
	if err := samePID(pid, pidfd); err != nil { // what is traced keeps its number
		return nil, err
	}
	if err := unix.PtraceInterrupt(pid); err != nil {
		return nil, traceError("stop", err)
	}
	signal, err := awaitStop(pid)
	if err != nil {
		return nil, err
	}
	filters, err := copyFilters(pid)
	return filters, errors.Join(err, traceError("let go", detach(pid, signal)))
}

// detach lets pid go on, with the signal that it stopped for.
func detach(pid int, signal unix.Signal) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(signal), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// traceError names the step. ESRCH is the kernel's word for a process that is gone.
func traceError(step string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ESRCH):
		return errEnded
	}
	return fmt.Errorf("%s the process: %w", step, err)
}

// awaitStop waits until pid has stopped. A signal may come first: it is then returned, and
// must be passed on. awaitStop asks instead of waiting in the kernel, which has no limit of
// time for that.
func awaitStop(pid int) (unix.Signal, error) {
	deadline := time.Now().Add(stopTimeout)
	for tries := 0; ; tries++ {
		var status unix.WaitStatus
		got, err := unix.Wait4(pid, &status, unix.WALL|unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the process to stop: %w", err)
		case got == pid && !status.Stopped():
			return 0, errEnded
		case got == pid && status>>16 == unix.PTRACE_EVENT_STOP: // ours, or that of its group
			return 0, nil
		case got == pid:
			return status.StopSignal(), nil
		case time.Now().After(deadline):
			return 0, fmt.Errorf("the process does not stop within %s", stopTimeout)
		}
		pauseBeforeAsking(tries)
	}
}

// pauseBeforeAsking yields to the process that has to stop; after a while it sleeps.
func pauseBeforeAsking(tries int) {
	const soon = 50
	if tries < soon {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // it cannot fail
		return
	}
	time.Sleep(100 * time.Microsecond) // nothing announces a stop to a poll
}

// copyFilters copies the programs of a stopped process.
func copyFilters(pid int) ([][]byte, error) {
	var out [][]byte
	for i := range maxFilters {
		length, errno := filterOf(pid, i, nil)
		switch {
		case errno == unix.ENOENT: // that was all of them
			return out, nil
		case errno == unix.EINVAL && i == 0:
			return nil, errNoFilters
		case errno != 0 || length <= 0:
			return nil, fmt.Errorf("read filter %d of %d instructions: %w", i, length, errno)
		}
		program := make([]byte, length*instructionLen)
		if got, errno := filterOf(pid, i, unsafe.Pointer(&program[0])); errno != 0 || got != length {
			return nil, fmt.Errorf("read filter %d of %d instructions, got %d: %w", i, length, got, errno)
		}
		out = append(out, program)
	}
	return nil, fmt.Errorf("more than %d filters are in force", maxFilters)
}

// filterOf returns the length of a program in instructions and copies it, unless to is nil.
func filterOf(pid, index int, to unsafe.Pointer) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(pid), uintptr(index), uintptr(to), 0, 0)
	return int(n), errno
}

// errNoFilters is the kernel's one answer for two cases; ProbeFilters tells the second.
var errNoFilters = errors.New("the process has no filter, or the kernel cannot show filters")
