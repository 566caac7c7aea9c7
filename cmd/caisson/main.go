// Command caisson runs commands in sandboxes. It is a thin client of caissond.
//
// The Go runtime is told not to look for the CPU limit of its cgroup again and again: the
// program ends before that matters, and what would look is a thread more.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/verbs"
)

// Set when linked.
var (
	version = "dev"
	commit  = "unknown"
)

func main() {
	cli.Program{Version: version, Commit: commit, Groups: verbs.Groups(), Whole: "caisson-whole"}.Main()
}
