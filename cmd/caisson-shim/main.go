// Command caisson-shim is what the daemon's containerd runs as its shim program.
// It answers at once what needs no shim's program, see package shimcall, and
// becomes that program, which lies beside it, for all else.
//
// The Go runtime is told not to look for the CPU limit of its cgroup again and again: the
// program ends before that matters, and what would look is a thread more.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/ctrd/shimcall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "caisson-shim:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(own), shimcall.Program)
	at := shimcall.Place{Bundle: ".", Sockets: os.Getenv(shimcall.SocketsEnv), Program: program}
	if call, ok := shimcall.Parse(args); ok {
		if answer, ok := call.Answer(at); ok {
			_, err := os.Stdout.Write(answer)
			shimcall.Failpoint(call.Action + "/answered")
			return err
		}
	}
	return fmt.Errorf("run %s: %w", program, unix.Exec(program, append([]string{program}, args...), os.Environ()))
}
