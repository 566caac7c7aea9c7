// Command caisson-init is PID 1 of a sandbox. It connects to the daemon's
// socket, starts the commands that it is asked for, signals them and reports
// their ends, and reaps whatever else ends in its pid namespace. Without a
// daemon it goes on for the orphan grace, and hands over to the next one.
//
// It has no rights beyond those of the commands, holds no secret, and when it
// exits the kernel kills all in the namespace.
//
// Its first argument is a mode, of which PID 1 has none: see modes.
//
// Each sandbox pays for its memory, so it is built without cgo and links no
// package that brings in os, fmt or reflect.
//
// The Go runtime is told not to look for the CPU limit of its cgroup, which
// would keep two descriptors open: nothing here runs in parallel.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/initproto/files"
)

// modes are what this binary does beside being PID 1, by its first argument.
// Each returns the exit status.
var modes = map[string]func() int{
	initproto.LaunchMode:  launchMain,
	initproto.NothingMode: func() int { return 0 },
	files.Mode:            runFiles,
}

// The first thread of PID 1 does nothing. The kernel drops a signal from inside
// whose action is the default, which is what protects PID 1 from its commands,
// only while the first thread does not block it; and a thread that forks blocks
// all signals for as long. In another mode a locked thread would only cost one more,
// which a sandbox may not have left.
func init() {
	if syscall.Getpid() == 1 {
		runtime.LockOSThread()
	}
}

func main() {
	// Nothing here runs in parallel, and on a host with many CPUs the Go runtime
	// would otherwise want memory and threads for each; see reserveThreads.
	if runtime.GOMAXPROCS(0) > 1 {
		runtime.GOMAXPROCS(1)
	}
	if name := argument(); name != "" {
		mode, ok := modes[name]
		if !ok {
			syscall.Exit(initproto.ExitUsage)
		}
		syscall.Exit(mode())
	}
	// The Go runtime makes its epoll descriptor with the first timer, its own
	// ones included, and ends the process if it gets none. Held pipes may by then
	// have taken all there are.
	time.Sleep(time.Nanosecond)
	if err := protect(); err != nil {
		syscall.Exit(initproto.ExitSetup)
	}
	if err := ownStreams(); err != nil {
		syscall.Exit(initproto.ExitSetup)
	}
	// Before the daemon hears of this process, as it then compares the filters in force.
	if err := guardNetlink(); err != nil {
		syscall.Exit(initproto.ExitSetup)
	}
	go func() { syscall.Exit(newServer(socketPath()).serve()) }()
	select {}
}

func socketPath() string {
	if path, ok := syscall.Getenv(initproto.SocketEnv); ok {
		return path
	}
	return initproto.Dir + "/" + initproto.SocketName
}

// argument returns the first argument, "" where there is none. Only package os
// offers the arguments otherwise.
func argument() string {
	fd, err := syscall.Open("/proc/self/cmdline", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "" // no mode works without /proc
	}
	defer syscall.Close(fd)
	var buf [512]byte
	n, err := syscall.Read(fd, buf[:])
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(buf[:n]), "\x00")
	name, _, _ := strings.Cut(rest, "\x00")
	return name
}
