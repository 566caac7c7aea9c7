package integration

import (
	"errors"
	"fmt"
	"testing"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// Where the commands of a sandbox have used up its processes, a further one and all work
// on files are refused as that, however many are left of what they need.
//
//caisson:kernel
func TestLimitOfProcesses(t *testing.T) {
	box(t, daemon, "full", "--pids", "24")
	fill(t, "full", 24)
	f := daemon.Refused(t, "SBX-116", "exec", "--json", "full", "--", "true")
	if f.Error.Message != `fork for "true": the limit of processes is reached` {
		t.Errorf("exec: %+v", f.Error)
	}
	c := dial(t)
	// Of the few that are freed here, some let a process for files begin that dies when
	// it wants a thread.
	const needs = 4
	for freed := 0; ; freed++ {
		_, err := c.Stat(t.Context(), &caissonv1.StatRequest{Ref: "full", Path: "/tmp"})
		if err == nil && freed > 0 {
			break
		}
		if !errors.Is(err, sbxerr.Processes) || freed > needs {
			t.Fatalf("stat with %d processes left: %v", freed, err)
		}
		daemon.Run(t, "kill", "-s", "KILL", "full", fmt.Sprint(freed+1))
		daemon.Try("wait", "full", fmt.Sprint(freed+1))
	}
}

// fill uses up the processes of a sandbox, of which there are at most n.
func fill(t *testing.T, ref string, n int) {
	t.Helper()
	for range n {
		r := daemon.Try("exec", "-d", "--json", ref, "--", "sleep", "1000")
		if r.Code != 0 {
			r.Refused(t, "SBX-116")
			return
		}
	}
	t.Fatalf("%d processes of %d can be used up", n, n)
}
