// Command caisson runs commands in sandboxes. It is a thin client of caissond.
//
// The Go runtime is told not to look for the CPU limit of its cgroup again and again: the
// program ends before that matters, and what would look is a thread more.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"context"
	"io"
	"os"
	"runtime/debug"
)

// Set when linked.
var (
	version = "dev"
	commit  = "unknown"
)

// gcPercent lets the heap grow to some 32 MB before it is collected. Messages with output
// are garbage at once: with the usual 100, four fifths of the time of a stream went into
// collecting a heap of 4 MB.
const gcPercent = 800

func main() {
	debug.SetGCPercent(gcPercent)
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program: it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return newApp(stdin, stdout, stderr).run(ctx, args)
}
