// Command caisson-shim is what the daemon's containerd runs as its shim program.
// It answers at once what needs no shim's program, see package shimcall, and
// becomes that program, which lies beside it, for all else.
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
	if call, ok := shimcall.Parse(os.Args[1:]); ok {
		if answer, ok := call.Answer(".", os.Getenv(shimcall.SocketsEnv)); ok {
			if _, err := os.Stdout.Write(answer); err != nil {
				fail(err)
			}
			return
		}
	}
	fail(become())
}

// become runs the shim's program in the place of this one.
func become() error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(own), shimcall.Program)
	return fmt.Errorf("run %s: %w", program, unix.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ()))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "caisson-shim:", err)
	os.Exit(1)
}
