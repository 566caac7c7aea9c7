package agents

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/server/servertest"
)

// TestMCPConfigNamesTheDaemon: a client starts the server without this environment.
func TestMCPConfigNamesTheDaemon(t *testing.T) {
	t.Chdir("/tmp")
	for _, client := range mcpClientNames() {
		for given, want := range map[string]string{"": "", "/f": "/f", "r/f": "/tmp/r/f"} {
			args := []string{"mcp", "--print-config", client}
			if given != "" {
				args = append(args, "--socket", given)
			}
			code, stdout, stderr := invoke(t, &servertest.Fake{}, "", args...)
			if want == "" {
				want = os.Getenv("CAISSON_SOCKET") // that invoke set
			}
			stdout = strings.Join(strings.Fields(stdout), "")
			if want = `["mcp","--socket","` + want + `"]`; code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("%s with %q: code %d, want %s: %s%s", client, given, code, want, stdout, stderr)
			}
		}
	}
}
