package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/server/servertest"
	"github.com/caisson-run/caisson/runtime"
)

// learns is a daemon whose command reaches what the rules allow, and notes what it
// is asked for.
func learns(asked *runtime.Request, rules ...string) *servertest.Fake {
	return &servertest.Fake{OnRun: func(_ context.Context, req runtime.Request, _ runtime.IO) (*runtime.Result, error) {
		*asked = req
		return &runtime.Result{ExitCode: 4, Learned: &runtime.Learned{Rules: rules}}, nil
	}}
}

func TestLearnAsksForARun(t *testing.T) {
	var asked runtime.Request
	code, stdout, stderr := invoke(t, learns(&asked), "in", "policy", "learn", "-i", "--allow", "db.corp:5432,private", "-m", "1G", "--", "make", "-j2")
	if code != 4 || stdout != "" || stderr != "caisson: it reached nothing: it needs no network\n" {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
	if !asked.Learn || asked.Create.Network != "" || len(asked.Create.Allow) != 1 || *asked.Create.Limits.MemoryBytes != 1<<30 || strings.Join(asked.Exec.Args, " ") != "make -j2" || !asked.Exec.Stdin {
		t.Errorf("asked for %+v", asked)
	}
	if _, _, _ = invoke(t, learns(&asked), "", "run", "--", "make"); asked.Learn {
		t.Error("run learns")
	}
}

func TestLearnWrites(t *testing.T) {
	var asked runtime.Request
	file := filepath.Join(t.TempDir(), "rules")
	code, _, stderr := invoke(t, learns(&asked, "a.example:443", "b.example:22"), "", "policy", "learn", "--write", file, "--", "make")
	if got, err := os.ReadFile(file); err != nil || string(got) != "a.example:443\nb.example:22\n" || code != 4 || stderr != "" {
		t.Errorf("%d, %q, %v, %q", code, got, err, stderr)
	}
	code, _, stderr = invoke(t, learns(&asked, "a.example:443"), "", "policy", "learn", "--write", file+"/in/it", "--", "make")
	if code != 125 || !strings.Contains(stderr, "to allow:\na.example:443\n") || !strings.Contains(stderr, "SBX-") {
		t.Errorf("to where no file can be: %d, %q", code, stderr)
	}
}
