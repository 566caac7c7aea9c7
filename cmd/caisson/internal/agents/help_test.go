package agents

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/server/servertest"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// The help of the root names all verbs.
func TestHelp(t *testing.T) {
	code, stdout, stderr := invoke(t, &servertest.Fake{}, "", "--help")
	got := strings.ReplaceAll(stdout, os.Getenv("CAISSON_SOCKET"), "SOCKET")
	if code != 0 || stderr != "" {
		t.Errorf("code %d: %s", code, stderr)
	}
	const path = "testdata/help.golden"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || got != string(want) {
		t.Errorf("%s changed (-update rewrites it): %v\n%s", path, err, got)
	}
}

// The help of each verb fits a terminal of 80 columns and shows how to call it.
func TestHelpFits(t *testing.T) {
	for _, verb := range []string{"mcp", "plug claude", "plug codex"} {
		code, stdout, _ := invoke(t, &servertest.Fake{}, "", append(strings.Fields(verb), "--help")...)
		if code != 0 || !strings.Contains(stdout, "Examples:\n  caisson "+verb) {
			t.Errorf("%s: code %d: %s", verb, code, stdout)
		}
		for line := range strings.Lines(stdout) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
				t.Errorf("%s: %d columns: %s", verb, n, line)
			}
		}
	}
}
