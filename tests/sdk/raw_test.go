package sdk

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// TestRawClients drives a session without an SDK, over a daemon that is killed in the
// middle: no byte is lost, and none comes twice.
func TestRawClients(t *testing.T) {
	need.Tools(t, "node", "npm", "python3")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/raw")); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, "npm", "ci", "--no-audit", "--no-fund")
	d := harness.Start(t)
	for _, program := range [][]string{{"python3", "session.py"}, {"node", "session.mjs"}} {
		t.Run(program[0], func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, program[0], program[1], d.Socket)
			cmd.Dir = dir
			killAsAsked(t, d, cmd, 1)
		})
	}
}
