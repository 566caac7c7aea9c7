package agents

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/server/servertest"
)

// TestPlugClaudePrint: the settings name a sandbox, and the command that is shown makes it.
func TestPlugClaudePrint(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := invoke(t, &servertest.Fake{}, "", "plug", "claude", "--image", "tools", "--allow", "a.example", "-e", "A=b c", "--print")
	var settings struct{ Env map[string]string }
	if err := json.Unmarshal([]byte(stdout), &settings); err != nil || code != 0 {
		t.Fatal(code, err, stdout, stderr)
	}
	want := "create --socket " + settings.Env["CAISSON_SOCKET"] + " --ensure --name " + settings.Env[cli.EnvClaudeSandbox] +
		" --workspace " + here + ":" + here + ":rw --image tools --allow a.example --env 'A=b c'\n"
	if settings.Env[cli.EnvClaudeSandbox] == "" || !strings.HasSuffix(stderr, want) {
		t.Errorf("%s, want %s", stderr, want)
	}
	t.Setenv("PATH", here)
	if code, _, stderr := invoke(t, &servertest.Fake{}, "", "plug", "claude"); code != 125 || !strings.Contains(stderr, "remedy: install Claude Code") {
		t.Errorf("without Claude Code: %d, %s", code, stderr)
	}
}
