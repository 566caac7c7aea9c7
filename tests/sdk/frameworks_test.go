package sdk

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// recipeBlocks are the blocks of the page that name a file.
var recipeBlocks = regexp.MustCompile("(?ms)^```js (\\w+\\.js)\n(.*?)^```$")

// TestFrameworks has agents of other frameworks use the recipes of the documentation, with
// the packages as they are, and a stand-in for the model.
func TestFrameworks(t *testing.T) {
	need.Tools(t, "node", "npm")
	packed := packTypeScript(t)
	app := t.TempDir()
	if err := os.CopyFS(app, os.DirFS("testdata/frameworks")); err != nil {
		t.Fatal(err)
	}
	runIn(t, app, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	runIn(t, app, "npm", "install", "--no-save", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", packed)
	page, err := os.ReadFile("../../docs/how-to/agent-frameworks.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := recipeBlocks.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d recipes", len(blocks))
	}
	for _, block := range blocks {
		if err := os.WriteFile(filepath.Join(app, block[1]), []byte(block[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, block := range blocks {
		name := block[1][:len(block[1])-len(".js")]
		t.Run(name, func(t *testing.T) { wantLines(t, node(t, daemon, app, "drive.js", name), "ok") })
	}
}
