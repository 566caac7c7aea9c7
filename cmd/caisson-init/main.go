// Command caisson-init is PID 1 of a sandbox. It connects to the daemon's
// socket, starts the commands that it is asked for, signals them and reports
// their ends, and reaps whatever else ends in its pid namespace.
//
// It has no rights beyond those of the commands, holds no secret, and exits as
// soon as the daemon is gone, upon which the kernel kills all in the namespace.
//
// Each sandbox pays for its memory, so it is built without cgo and links no
// package that brings in os, fmt or reflect.
package main

import (
	"runtime"
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

func main() { syscall.Exit(run(socketPath())) }

func socketPath() string {
	if path, ok := syscall.Getenv(initproto.SocketEnv); ok {
		return path
	}
	return initproto.Dir + "/" + initproto.SocketName
}

// run returns the exit status.
func run(path string) int {
	// Nothing here runs in parallel, and on a host with many CPUs the Go runtime
	// would otherwise want memory and threads for each; see reserveThreads.
	if runtime.GOMAXPROCS(0) > 1 {
		runtime.GOMAXPROCS(1)
	}
	if err := protect(); err != nil {
		return initproto.ExitSetup
	}
	conn, err := initproto.Dial(path)
	if err != nil {
		return initproto.ExitConnect
	}
	return newServer(conn).serve()
}
