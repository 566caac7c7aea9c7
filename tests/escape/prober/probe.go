package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probe is one attempt.
type probe struct {
	id   string // of the list of isolation probes
	name string // unique
	// try makes the attempt and names what came of it: the errno, "ok", or a
	// word that the probe's want holds.
	try   func() string
	want  []string // the outcomes in which the sandbox holds
	alone bool     // in a process of its own: it may be killed, or change it
}

// probes are all there are, in the order of the sections.
func probes() []probe {
	return slices.Concat(identityProbes(), callProbes(), machineProbes(), socketProbes(), fileProbes(), procProbes(), networkProbes(), ipcProbes())
}

// Outcomes that are no errno.
const (
	ok     = "ok"
	absent = "absent"
	none   = "none"
)

// outcome names err: the errno where there is one.
func outcome(err error) string {
	if err == nil {
		return ok
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errnoName(errno)
	}
	return err.Error()
}

func errnoName(e syscall.Errno) string {
	if name := unix.ErrnoName(e); name != "" {
		return name
	}
	return "errno " + strconv.Itoa(int(e))
}

// attemptTime is what one attempt may take.
const attemptTime = 5 * time.Second

// inThread makes an attempt on a thread that is thrown away, so that what the
// attempt changed of the thread (ids, capabilities, namespaces) goes with it.
// A thread that the kernel kills takes the answer with it.
func inThread(try func() string) string {
	answer, tid := make(chan string, 1), make(chan int, 1)
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		answer <- try()
	}()
	id := <-tid
	deadline := time.Now().Add(attemptTime)
	for time.Now().Before(deadline) {
		select {
		case a := <-answer:
			return a
		case <-time.After(50 * time.Millisecond): // nothing announces the death of a thread
			if unix.Tgkill(unix.Getpid(), id, 0) != nil && len(answer) == 0 {
				return "thread killed"
			}
		}
	}
	return "no answer"
}

// inChild makes an attempt in a process of its own.
func inChild(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*attemptTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(append([]string{"one"}, passed...), name)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return "not started: " + outcome(err)
	}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return unix.SignalName(status.Signal())
	}
	if err != nil {
		return err.Error()
	}
	return out.String()
}

// raw makes a system call with harmless and invalid arguments: the filter
// answers by number and arguments, the kernel by looking at them.
func raw(nr uintptr, args ...uintptr) string {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := syscall.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errnoName(errno)
	}
	return ok
}

// list renders a list of names, or that there is none.
func list(names []string) string {
	if len(names) == 0 {
		return none
	}
	return fmt.Sprint(names)
}

// tryOpen opens a file and reads and writes nothing.
func tryOpen(path string, flags int) string {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return outcome(err)
	}
	_ = unix.Close(fd)
	return ok
}

func readText(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}
