package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/server/servertest"
)

// TestPlugCodexInstall: the settings hold the flags, and others are never overwritten.
func TestPlugCodexInstall(t *testing.T) {
	home := filepath.Join(t.TempDir(), "new", "home")
	t.Setenv("CODEX_HOME", home)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("env", []byte("A=b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"--socket", "/s", "--image", "tools", "--allow", "a.example", "--allow", "b.example", "--allow-ech", "--env-file", "env", "-e", `Q=a "b" \`, "--workspace", ".:/p:ro"}
	plug := func(args ...string) (code int, stdout, stderr string) {
		return invoke(t, &servertest.Fake{}, "", append([]string{"plug", "codex"}, args...)...)
	}
	for range 2 {
		if code, _, stderr := plug(append(flags, "--install")...); code != 0 {
			t.Fatal(stderr)
		}
	}
	file := filepath.Join(home, "environments.toml")
	settings, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"default = \"caisson\"\ninclude_local = false\n", "\"plug\",\"codex\",\"--serve\",\"--socket\",\"/s\",", `"--image","tools"`, `"--allow","a.example","--allow","b.example"`,
		`"--allow-ech=true"`, `"--env-file","` + here + `/env"`, `"--env","Q=a \"b\" \\"`, `"--workspace","` + here + `:/p:ro"`,
	} {
		if !strings.Contains(string(settings), want) {
			t.Errorf("%s has no %s", settings, want)
		}
	}
	if _, shown, _ := plug(append(flags, "--print")...); shown != string(settings) {
		t.Errorf("printed %q, wrote %q", shown, settings)
	}
	if code, _, stderr := plug("--install"); code == 0 || !strings.Contains(stderr, "- args = ") || !strings.Contains(stderr, "+ args = ") {
		t.Errorf("other settings: code %d, %s", code, stderr)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != string(settings) {
		t.Errorf("changed to %q, %v", now, err)
	}
	for _, args := range [][]string{{}, {"--install", "--print"}, {"--install", "--serve"}, {"--print", "--memory", "x"}, {"--install", "extra"},
		{"--listen", "127.0.0.1:0", "--serve"}, {"--token-file", "x", "--serve"}, {"--listen", "ws://10.0.0.1:0"}, {"--listen", "127.0.0.1"}} {
		if code, _, stderr := plug(args...); code == 0 || !strings.Contains(stderr, "SBX-801") && !strings.Contains(stderr, "SBX-10") {
			t.Errorf("%q: code %d, %s", args, code, stderr)
		}
	}
}
