package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// shellBlocks are the fenced blocks of a page that say they are shell.
var shellBlocks = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// shellPages are the pages with shell blocks, and how many each has.
var shellPages = map[string]int{
	"README.md":                              2,
	"docs/tutorial.md":                       10,
	"docs/how-to/allow-a-host.md":            5,
	"docs/how-to/audit-and-metrics.md":       3,
	"docs/how-to/connect-an-orchestrator.md": 2,
	"docs/how-to/connect-an-mcp-client.md":   1,
	"docs/how-to/install-as-root-inside.md":  3,
	"docs/how-to/make-an-image.md":           3,
	"docs/how-to/operate-a-host.md":          5,
	"docs/how-to/run-an-agent.md":            4,
	"docs/reference/api.md":                  5,
	"docs/reference/cli.md":                  12,
	"docs/reference/images.md":               1,
	"docs/reference/network.md":              4,
}

// shellFunctions are those that a block defines, for the later blocks of its page.
var shellFunctions = regexp.MustCompile(`(?ms)^\w+\(\) \{(?: [^\n]*; \}\n|.*?^\}\n)`)

// refusals are what calls of the API are refused with.
var refusals = regexp.MustCompile(`\{"error":\{"code":"SBX-`)

// prelude makes whatever fails end the script: a command of a sandbox may fail,
// caisson itself may not, unless the page shows a refusal: its line says absent.
const prelude = `
set -e
caisson() {
  code=0; "$CAISSON_BIN_DIR/caisson" "$@" || code=$?
  [ $code != 125 ] || case "$*" in *absent*) ;; *) echo "caisson $*: refused" >&2; exit 125;; esac
  return 0
}
`

// Every command that the documents show works as shown, by a daemon that keeps sandboxes
// ready, as one without a configuration does.
func TestDocumentedCommands(t *testing.T) {
	need.Tools(t, "curl", "dpkg")
	d := harness.StartWith(t, "warm: 4\n")
	for page, blocks := range shellPages {
		t.Run(filepath.Base(page), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../..", page))
			if err != nil {
				t.Fatal(err)
			}
			found := shellBlocks.FindAllStringSubmatch(string(text), -1)
			if len(found) != blocks {
				t.Fatalf("%d shell blocks, want %d", len(found), blocks)
			}
			var helpers string
			for i, block := range found {
				if strings.Contains(block[1], "make ") || strings.Contains(block[1], "/usr/local/go") {
					continue // what make does and the demo shows
				}
				runBlock(t, d, fmt.Sprintf("%s, block %d", page, i+1), helpers+block[1])
				helpers += strings.Join(shellFunctions.FindAllString(block[1], -1), "")
			}
		})
	}
	await(t, "the end of what was started", func() bool { return strings.TrimSpace(d.Run(t, "ls", "-o", "json").Stdout) == "[]" })
}

func runBlock(t *testing.T, d *harness.Daemon, name, script string) {
	t.Helper()
	dir := workspace(t, 1000, 1000)
	if err := os.WriteFile(filepath.Join(dir, "rootfs.tar"), tarOf(t, rootFiles(t, "x")), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", prelude+script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CAISSON_SOCKET="+d.Socket)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s\n%s", name, err, script, out)
	}
	if got, want := len(refusals.FindAll(out, -1)), strings.Count(script, "/absent "); got != want {
		t.Errorf("%s: %d calls were refused, want the %d of what is absent\n%s", name, got, want, out)
	}
	for _, image := range []string{"tools", "mine"} {
		d.Try("image", "rm", image) // made by some of the blocks
	}
}
