package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

type refusal struct {
	Name, Code, Needs string
	Port              int
}

// refusedIn is what a result says was refused.
func refusedIn(t *testing.T, args ...string) []refusal {
	t.Helper()
	var result struct{ Refusals []refusal }
	daemon.Try(args...).JSONIn(t, "result", &result)
	return result.Refusals
}

// A command that was refused a destination says so in a line and in its result, and one
// that was refused nothing does not.
//
//caisson:kernel
func TestRefusalsAreTold(t *testing.T) {
	const line = "caisson: refused: bar.example (lookup). Allow it with --allow bar.example\n"
	fetch := []string{"--", "wget", "-q", "http://bar.example/"}
	session := strings.TrimSpace(daemon.Run(t, "create", "--allow", "a.example").Stdout)
	defer daemon.Run(t, "rm", "-f", session)
	for _, call := range [][]string{{"run", "--allow", "a.example"}, {"exec", session}} {
		if r := daemon.Try(append(slices.Clone(call), fetch...)...); !strings.HasSuffix(r.Stderr, line) {
			t.Errorf("%q: %s", call, r.Stderr)
		}
		if r := daemon.Try(append(slices.Insert(slices.Clone(call), 1, "-q"), fetch...)...); r.Code == 0 || strings.Contains(r.Stderr, "caisson:") {
			t.Errorf("%q -q: %s", call, r.Stderr)
		}
		asked := slices.Insert(slices.Clone(call), 1, "--json")
		if got := refusedIn(t, append(slices.Clone(asked), fetch...)...); !slices.Equal(got, []refusal{{"bar.example", "SBX-701", "bar.example", 0}}) {
			t.Errorf("%q: %+v", call, got)
		}
		if got := refusedIn(t, append(asked, "--", "true")...); len(got) != 0 {
			t.Errorf("%q of nothing: %+v", call, got)
		}
	}
}

// Without a network the kernel tells that a lookup or a connection was tried, and not where to.
//
//caisson:kernel
func TestRefusalsWithoutANetwork(t *testing.T) {
	session := strings.TrimSpace(daemon.Run(t, "create").Stdout)
	defer daemon.Run(t, "rm", "-f", session)
	for _, call := range [][]string{{"run", "--json"}, {"exec", "--json", session}} {
		for target, want := range map[string]int{"http://bar.example/": 1, "http://93.184.215.14/": 1, "": 0} {
			args := append(slices.Clone(call), "--", "wget", "-q", target)
			if target == "" {
				args = append(slices.Clone(call), "--", "true")
			}
			got := refusedIn(t, args...)
			if len(got) != want || want > 0 && got[0] != (refusal{Code: "SBX-701"}) {
				t.Errorf("%q: %+v", args, got)
			}
		}
	}
}

// TestPolicyLogSaysWhatAllows: the log names the rule that would allow what was refused, and tells
// repeats on one line.
func TestPolicyLogSaysWhatAllows(t *testing.T) {
	box(t, daemon, "asking", "--allow", "fine.example")
	daemon.Run(t, "exec", "asking", "--", "sh", "-c", "for i in 1 2 3; do nslookup other.example; done; true")
	log := daemon.Run(t, "policy", "log", "asking").Stdout
	if strings.Count(log, "\n") != 1 {
		t.Errorf("repeats are not folded:\n%s", log)
	}
	for _, want := range []string{"--allow other.example allows it", "times more after it"} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is missing:\n%s", want, log)
		}
	}
	var first struct{ Needs, Cursor string }
	line, _, _ := strings.Cut(daemon.Run(t, "policy", "log", "--json", "asking").Stdout, "\n")
	if err := json.Unmarshal([]byte(line), &first); err != nil || first.Needs != "other.example" || first.Cursor == "" {
		t.Errorf("%q: %+v, %v", line, first, err)
	}
}
