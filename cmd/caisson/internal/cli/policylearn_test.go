package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// learns is a daemon whose command reaches what the rules allow, and notes what it
// is asked for.
func learns(asked *plan.Request, rules ...string) *servertest.Fake {
	return &servertest.Fake{OnRun: func(_ context.Context, req plan.Request, _ runtime.IO) (*runtime.Result, error) {
		*asked = req
		return &runtime.Result{ExitCode: 4, Learned: &runtime.Learned{Rules: rules}}, nil
	}}
}

func TestLearnAsksForARun(t *testing.T) {
	var asked plan.Request
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
	var asked plan.Request
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

// What the rules of a sandbox may not cover is told, and is no failure.
func TestLearnOfASandboxWarns(t *testing.T) {
	fake := &servertest.Fake{OnLearn: func(string) (*runtime.Learned, error) {
		return &runtime.Learned{Rules: []string{"a.example:443"}, Warnings: []string{"some are gone"}}, nil
	}}
	for _, tt := range []struct{ format, want string }{{"--output=table", "a.example:443\n"}, {"--json", "{\n  \"rules\": [\n    \"a.example:443\"\n  ],\n  \"warnings\": [\n    \"some are gone\"\n  ]\n}\n"}} {
		code, stdout, stderr := invoke(t, fake, "", "policy", "learn", tt.format, "agent")
		if code != 0 || stdout != tt.want || stderr != "caisson: warning: some are gone\n" {
			t.Errorf("%s: %d, %q, %q", tt.format, code, stdout, stderr)
		}
	}
}

// That entries are no longer kept is said, whatever is asked for, and is no entry.
func TestLogTellsOfGaps(t *testing.T) {
	fake := &servertest.Fake{OnTraffic: func(string, string, bool) ([]runtime.TrafficEntry, error) {
		return []runtime.TrafficEntry{{Kind: runtime.TrafficGap, Reason: "some are gone"}, {Kind: "lookup", Verdict: "refused", Name: "x.example", Type: "A"}}, nil
	}}
	code, stdout, stderr := invoke(t, fake, "", "policy", "log", "agent")
	if code != 0 || stderr != "caisson: warning: some are gone\n" || strings.Contains(stdout, "gap") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
	if _, stdout, stderr := invoke(t, fake, "", "policy", "log", "--json", "agent"); strings.Count(stdout, "\n") != 2 || !strings.Contains(stdout, `"kind":"gap"`) || stderr != "" {
		t.Errorf("%q, %q", stdout, stderr)
	}
}
